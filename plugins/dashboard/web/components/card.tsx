import type { ComponentChildren } from 'preact'
import { useId } from 'preact/hooks'
import { amount, UNIT } from '../format.ts'

type Props = { title?: string; hint?: ComponentChildren; actions?: ComponentChildren; children: ComponentChildren; class?: string }

/** A section of a page with a heading of its own. */
export function Card({ title, hint, actions, children, class: more = '' }: Props) {
  const id = useId()
  return (
    <section class={`card ${more}`} {...(title === undefined ? {} : { 'aria-labelledby': id })}>
      {title !== undefined && (
        <header class="card-head">
          <div>
            <h2 id={id}>{title}</h2>
            {hint && <p class="muted">{hint}</p>}
          </div>
          {actions && <div class="row">{actions}</div>}
        </header>
      )}
      {children}
    </section>
  )
}

/** The head of a page: its only `h1`, which takes the focus when the page changes. */
export function PageHead({ title, lead, actions }: { title: string; lead?: ComponentChildren; actions?: ComponentChildren }) {
  return (
    <header class="page-head">
      <div>
        <h1 tabIndex={-1}>{title}</h1>
        {lead && <p class="lead">{lead}</p>}
      </div>
      {actions && <div class="row">{actions}</div>}
    </header>
  )
}

/** A name and its value; `isBig` for the one that counts most among its neighbours. */
export function Fact({ name, isBig = false, children }: { name: string; isBig?: boolean; children: ComponentChildren }) {
  return (
    <div class={isBig ? 'fact big' : 'fact'}>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  )
}

/** An amount as a fact. */
export function Amount({ of }: { of: string }) {
  return (
    <span class="amount">
      {amount(of)} <span class="unit">{UNIT}</span>
    </span>
  )
}
