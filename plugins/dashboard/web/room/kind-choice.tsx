/** One of the kinds or operations, as cards with their price. What is off says why. */
import { useId } from 'preact/hooks'
import { Icon } from '../components/icon.tsx'
import type { Kind } from './media-api.ts'
import { priceOf, useRoom } from './room-state.ts'
import { priceInWords, wordsOf } from './labels.ts'

type Props = {
  label: string
  kinds: Kind[]
  value: string
  choose: (kind: string) => void
  /** Why a kind that is available does not apply now; null when it does. */ refuse?: (kind: Kind) => string | null
}

export function KindChoice({ label, kinds, value, choose, refuse = () => null }: Props) {
  const group = useId()
  const room = useRoom()
  return (
    <fieldset class="kinds">
      <legend class="visually-hidden">{label}</legend>
      {kinds.map((kind) => {
        const { name, icon, does } = wordsOf(kind.verb)
        const reason = kind.available ? refuse(kind) : (kind.reason ?? 'This service does not offer it.')
        const price = priceOf(room, kind.verb)
        return (
          <label key={kind.verb} class={reason === null ? 'kind' : 'kind off'} title={reason ?? does}>
            <input
              type="radio"
              name={group}
              value={kind.verb}
              checked={value === kind.verb}
              disabled={reason !== null}
              onChange={() => choose(kind.verb)}
            />
            <span class="kind-body">
              <Icon name={reason === null ? icon : 'lock'} />
              <strong>{name}</strong>
              <small>{reason ?? (price ? priceInWords(price) : does)}</small>
            </span>
          </label>
        )
      })}
    </fieldset>
  )
}
