import { isActive, isMedia, type Plan, type WindowUsage } from '../../api/plans.ts'
import { serverTime } from '../../clock.ts'
import { AllowanceFacts } from '../../components/allowance.tsx'
import { Card } from '../../components/card.tsx'
import { Gauge, Meter } from '../../components/gauge.tsx'
import { Icon } from '../../components/icon.tsx'
import { Badge, Notice } from '../../components/states.tsx'
import { Countdown } from '../../components/time.tsx'
import { day, percent, short } from '../../format.ts'
import { hrefOf } from '../../router.ts'

const TONES = { Room: 'room', Media: 'media', Coding: 'coding' } as const
const UNLOCKS: Record<string, { name: string; path: string }> = {
  media_api: { name: 'Media API', path: '/keys' },
  ai_room: { name: 'AI Room', path: '/room' },
  coding_api: { name: 'Coding Plan API', path: '/keys' },
}

export function PlanCard(plan: Plan) {
  const { display_name: title, product, message, unlocks } = plan
  const active = isActive(plan)
  return (
    <Card
      title={title}
      class="plan"
      hint={<Terms {...plan} />}
      actions={
        <>
          <Badge tone={TONES[product]}>{product}</Badge>
          <Badge tone={active ? 'ok' : 'warn'}>{active ? 'Active' : 'Not active'}</Badge>
        </>
      }
    >
      {!active && (
        <Notice tone="warn" icon="lock" title="Locked">
          {message ?? 'This plan is not active.'} Its API keys do not work and are not shown.
        </Notice>
      )}
      {active && plan.summary.media && <Allowance {...plan.summary.media} plan={plan} />}
      {active && plan.summary.coding && <Windows {...plan.summary.coding} />}
      <ul class="unlocks" aria-label={active ? 'Unlocked' : 'Locked'}>
        {unlocks.map((code) => {
          const { name, path } = UNLOCKS[code] ?? { name: code, path: '/' }
          return (
            <li key={code} class={active ? 'open' : ''}>
              <Icon name={active ? 'check' : 'lock'} size={16} />
              {active ? <a href={hrefOf(path)}>{name}</a> : <span>{name}</span>}
            </li>
          )
        })}
      </ul>
      {active && (
        <a class="more" href={hrefOf(isMedia(plan) ? '/usage/media' : '/usage/coding')}>
          Usage in detail <Icon name="chevron" size={16} />
        </a>
      )}
    </Card>
  )
}

function Terms({ state, starts_at: starts, expires_at: expires, period }: Plan) {
  if (state !== 'Active' && starts !== null && Date.parse(starts) > serverTime()) return <>Starts on {day(starts)}</>
  return (
    <>
      {period && `Period until ${day(period.end)}`}
      {period && expires && ' · '}
      {expires && `Ends on ${day(expires)}`}
      {!period && !expires && 'No end date'}
    </>
  )
}

type Props = { allowance: string; held: string; burned: string; remaining: string; plan: Plan }

function Allowance({ allowance, held, burned, remaining, plan }: Props) {
  return (
    <>
      <AllowanceFacts of={{ remaining, burned, held, allowance }} />
      <Meter
        label={`Used of the allowance of ${plan.display_name}`}
        max={Number(allowance)}
        parts={[
          { name: 'spent', value: Number(burned) },
          { name: 'held', value: Number(held) },
        ]}
        tone={plan.product === 'Room' ? 'room' : 'media'}
      />
    </>
  )
}

function Windows({ session, weekly }: { session: WindowUsage; weekly: WindowUsage }) {
  return (
    <div class="gauges">
      <Window name="Session" {...session} />
      <Window name="Week" {...weekly} />
    </div>
  )
}

function Window({ name, limit, used, resets_at: resetsAt }: WindowUsage & { name: string }) {
  return (
    <figure>
      <Gauge
        label={`${name}: tokens used`}
        value={used}
        max={limit}
        centre={percent(used, limit)}
        below={`${short(used)} of ${short(limit)}`}
      />
      <figcaption>
        <strong>{name}</strong>
        <span class="muted">{resetsAt && used > 0 ? <>resets in {<Countdown to={resetsAt} />}</> : 'not begun'}</span>
      </figcaption>
    </figure>
  )
}
