import type { KeyLimit } from '../../api/keys.ts'
import { InputField } from '../../components/field.tsx'
import { UNIT } from '../../format.ts'

const MONEY = /^\d{1,12}(\.\d{1,6})?$/
const TOKENS = /^[1-9]\d{0,14}$/

/** What is wrong with a typed limit; nothing without one. */
export function limitFaults(limit: string, isAmount: boolean): { limit?: string } {
  if (limit === '' || (isAmount ? MONEY : TOKENS).test(limit)) return {}
  return { limit: isAmount ? 'Use an amount such as 10.00.' : 'Use a whole number of tokens.' }
}

/** A typed limit for the API. */
export const limitOf = (limit: string, isAmount: boolean): KeyLimit =>
  isAmount ? { amount_per_period: limit } : { weekly_tokens: Number(limit) }

type Props = { isAmount: boolean; value: string; error: string | null; change: (value: string) => void }

/** The limit of a key: money for media, tokens for coding. */
export function LimitField({ isAmount, value, error, change }: Props) {
  const hint = `This key's share of the ${isAmount ? `allowance in each period, in ${UNIT}` : 'weekly tokens'}.`
  return (
    <InputField
      label="Limit (optional)"
      hint={hint}
      error={error}
      inputMode="decimal"
      autocomplete="off"
      placeholder={isAmount ? '10.00' : '100000'}
      value={value}
      onInput={(event) => change(event.currentTarget.value.trim())}
    />
  )
}
