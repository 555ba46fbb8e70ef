/** One of the kinds or operations, as cards with their price. What is off says why. */
import { useId } from 'preact/hooks'
import { Icon } from '../components/icon.tsx'
import type { Kind } from './media-api.ts'
import { priceOf, useRoom } from './room-state.ts'
import { label as nameOf } from '../format.ts'
import { explained, iconOf, priceInWords } from './labels.ts'

type Props = {
  label: string
  kinds: Kind[]
  value: string
  choose: (kind: string) => void
}

export function KindChoice({ label, kinds, value, choose }: Props) {
  const group = useId()
  const room = useRoom()
  const chosen = kinds.find(({ name }) => name === value)
  return (
    <fieldset class={kinds.some(({ object }) => object === 'operation') ? 'kinds two' : 'kinds'}>
      <legend class="visually-hidden">{label}</legend>
      {kinds.map((kind) => {
        const reason = kind.available ? null : (kind.reason ?? 'This service does not offer it.')
        const price = priceOf(room, kind.name)
        return (
          <label key={kind.name} class={reason === null ? 'kind' : 'kind off'} title={reason ?? explained(kind)}>
            <input
              type="radio"
              name={group}
              value={kind.name}
              checked={value === kind.name}
              disabled={reason !== null}
              onChange={() => choose(kind.name)}
            />
            <span class="kind-body">
              <Icon name={iconOf(kind.name)} size={18} />
              <strong>{nameOf(kind.name)}</strong>
              <small>{reason ?? (price ? priceInWords(price) : '')}</small>
            </span>
          </label>
        )
      })}
      {chosen && <p class="hint kinds-hint">{explained(chosen)}</p>}
    </fieldset>
  )
}
