/** The price before spending: a quote that follows the form. */
import { useEffect, useState } from 'preact/hooks'
import { outage, Problem } from '../api/client.ts'
import { Icon } from '../components/icon.tsx'
import { label, money, span } from '../format.ts'
import { readQuote, type Body, type Quote } from './media-api.ts'
import { useRoom } from './room-state.ts'

const PAUSE_MS = 350

export type Quoted = { state: 'none' } | { state: 'reading' } | { state: 'quoted'; quote: Quote } | { state: 'refused'; problem: Problem }

/** Quotes a body some time after its last change; null: the form is not complete. An answer that a change has overtaken is dropped. */
export function useQuote(body: Body | null): Quoted {
  const { plan, state } = useRoom()
  const [quoted, setQuoted] = useState<Quoted>({ state: 'none' })
  const text = body === null ? null : JSON.stringify(body)
  const ended = state.ended.value
  // A quote that was lost is asked for again once the server answers.
  const isOut = outage.value !== null
  useEffect(() => {
    if (text === null) return setQuoted({ state: 'none' })
    const abort = new AbortController()
    setQuoted((before) => (before.state === 'quoted' ? before : { state: 'reading' }))
    const timer = setTimeout(() => {
      readQuote(plan, JSON.parse(text) as Body, abort.signal).then(
        (quote) => setQuoted({ state: 'quoted', quote }),
        (error: unknown) =>
          !abort.signal.aborted &&
          setQuoted({ state: 'refused', problem: error instanceof Problem ? error : new Problem(0, 'internal', String(error)) }),
      )
    }, PAUSE_MS)
    return () => {
      clearTimeout(timer)
      abort.abort()
    }
  }, [text, plan, ended, isOut])
  return quoted
}

/** `isMost`: the source decides what is charged, up to the quote. */
export function PriceLine({ of, hint, isMost = false }: { of: Quoted; hint: string; isMost?: boolean }) {
  return (
    <p class="price" aria-live="polite" data-state={of.state}>
      <PriceText of={of} hint={hint} isMost={isMost} />
    </p>
  )
}

function PriceText({ of, hint, isMost }: { of: Quoted; hint: string; isMost: boolean }) {
  if (of.state === 'none') return <span class="muted">{hint}</span>
  if (of.state === 'reading') return <span class="muted">Getting the price …</span>
  if (of.state === 'refused') {
    return (
      <span class="price-bad">
        <Icon name="warning" size={16} /> {sentenceOf(of.problem)}
      </span>
    )
  }
  const { estimated_cost: cost, available, affordable, queue_position: position, estimated_wait_seconds: wait } = of.quote
  return (
    <>
      {isMost && <span class="muted">at most </span>}
      <strong class="price-amount">{money(cost)}</strong>{' '}
      {affordable ? <span class="muted">of {money(available)} left</span> : <span class="price-bad">but only {money(available)} left</span>}{' '}
      {position > 1 && (
        <span class="muted">
          · {position - 1} before it{wait ? `, about ${span(wait * 1000)}` : ''}
        </span>
      )}
    </>
  )
}

/** The sentence of a refusal, with the fields at fault in plain words. */
export function sentenceOf({ message, members }: Problem): string {
  const faults = (members['errors'] ?? []) as { path: string; message: string }[]
  if (faults.length === 0) return message
  return faults.map((fault) => `${label(fault.path.split('/')[1] ?? '')} ${fault.message}`.trim()).join('. ')
}
