/** Empty, loading and failed, as designed states of a page or a card. */
import type { ComponentChildren } from 'preact'
import { Problem } from '../api/client.ts'
import { Button } from './button.tsx'
import { Icon, type IconName } from './icon.tsx'

export function Loading({ lines = 3, label = 'Loading' }: { lines?: number; label?: string }) {
  return (
    <div class="loading" role="status">
      <span class="visually-hidden">{label}</span>
      {Array.from({ length: lines }, (_none, at) => (
        <span key={at} class="skeleton" />
      ))}
    </div>
  )
}

type EmptyProps = { icon: IconName; title: string; children?: ComponentChildren; action?: ComponentChildren }

export function Empty({ icon, title, children, action }: EmptyProps) {
  return (
    <div class="empty">
      <span class="empty-icon">
        <Icon name={icon} size={26} />
      </span>
      <p class="empty-title">{title}</p>
      {children && <div class="muted">{children}</div>}
      {action}
    </div>
  )
}

export function Failed({ error, retry }: { error: Error; retry?: () => unknown }) {
  const isUnreachable = error instanceof Problem && error.code === 'unreachable'
  return (
    <div class="empty" role="alert">
      <span class="empty-icon tone-danger">
        <Icon name={isUnreachable ? 'offline' : 'warning'} size={26} />
      </span>
      <p class="empty-title">{isUnreachable ? 'No connection' : 'This could not be loaded'}</p>
      <p class="muted">{error.message}</p>
      {retry && <Button text="Try again" onClick={() => void retry()} />}
    </div>
  )
}

export type Tone = 'neutral' | 'ok' | 'warn' | 'danger' | 'info'

type NoticeProps = { tone?: Tone; icon?: IconName; title?: string; children: ComponentChildren }

/** A message in the flow of a page: why something is as it is, and what to do. */
export function Notice({ tone = 'info', icon, title, children }: NoticeProps) {
  return (
    <div class={`notice tone-${tone}`}>
      <Icon name={icon ?? (tone === 'danger' || tone === 'warn' ? 'warning' : 'info')} />
      <div>
        {title && <strong>{title}</strong>}
        <div>{children}</div>
      </div>
    </div>
  )
}

export function Badge({ tone = 'neutral', children }: { tone?: Tone | 'room' | 'media' | 'coding'; children: ComponentChildren }) {
  return <span class={`badge tone-${tone}`}>{children}</span>
}
