import type { ComponentChildren } from 'preact'

/** Three quarters of a circle with radius 52. */
const RADIUS = 52
const ARC = 2 * Math.PI * RADIUS * 0.75

type GaugeProps = {
  /** What the gauge measures, for screen readers. */
  label: string
  value: number
  max: number
  /** A second part after the value, such as what is reserved. */
  more?: number
  /** The text in the middle, and the one below it. */
  centre: ComponentChildren
  below?: ComponentChildren
  tone?: 'media' | 'coding' | 'room'
}

/** How full something is. From 90 % it warns, and full it alerts, in words as well: the centre says how much. */
export function Gauge({ label, value, max, more = 0, centre, below, tone = 'coding' }: GaugeProps) {
  const share = (part: number) => (max <= 0 ? 0 : Math.min(1, Math.max(0, part / max)))
  const used = share(value)
  const state = used >= 1 ? 'danger' : used >= 0.9 ? 'warn' : tone
  return (
    <div
      class={`gauge tone-${state}`}
      role="meter"
      aria-label={label}
      aria-valuenow={Math.round(used * 100)}
      aria-valuemin={0}
      aria-valuemax={100}
      aria-valuetext={`${Math.round(used * 100)}%`}
    >
      <svg viewBox="0 0 120 120" aria-hidden="true" focusable="false">
        <circle class="gauge-track" cx="60" cy="60" r={RADIUS} stroke-dasharray={`${ARC} 999`} />
        {more > 0 && <circle class="gauge-more" cx="60" cy="60" r={RADIUS} stroke-dasharray={`${ARC * share(value + more)} 999`} />}
        {used > 0 && <circle class="gauge-value" cx="60" cy="60" r={RADIUS} stroke-dasharray={`${Math.max(0.01, ARC * used)} 999`} />}
      </svg>
      <div class="gauge-text">
        <strong>{centre}</strong>
        {below && <span>{below}</span>}
      </div>
    </div>
  )
}

type MeterProps = { label: string; parts: { name: string; value: number }[]; max: number; tone?: 'media' | 'coding' | 'room' }

/** Parts of a whole as one bar. */
export function Meter({ label, parts, max, tone = 'media' }: MeterProps) {
  const share = (value: number) => (max <= 0 ? 0 : Math.min(100, (value / max) * 100))
  const used = Math.round(share(parts.reduce((sum, { value }) => sum + value, 0)))
  return (
    <div
      class={`meter tone-${tone}`}
      role="meter"
      aria-label={label}
      aria-valuenow={used}
      aria-valuemin={0}
      aria-valuemax={100}
      aria-valuetext={`${used}%`}
    >
      {parts.map(({ name, value }) => (
        <span key={name} style={{ width: `${share(value)}%` }} />
      ))}
    </div>
  )
}
