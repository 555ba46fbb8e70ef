/** The form of an operation: its source, which operation, the parameters, the price, and the button that spends it. */
import { CreateButton } from './create-button.tsx'
import { KindChoice } from './kind-choice.tsx'
import { familyOf } from './labels.ts'
import type { Kind } from './media-api.ts'
import { bodyOf, has, missingOf, needs, type Edit } from './operation-body.ts'
import { OperationFields } from './operation-fields.tsx'
import { PriceLine, useQuote } from './price.tsx'
import { RequestCode } from './request-code.tsx'
import { kindOf, priceOf, useRoom } from './room-state.ts'
import { SourceInput } from './source-input.tsx'
import { SourceList } from './source-list.tsx'

/** Whether an operation takes sources of that family; null: there are none yet. */
const takes = ({ reads }: Kind, family: string | null): boolean => family === null || (reads === 'image') === (family === 'image')

export function Editor() {
  const room = useRoom()
  const { state, kinds } = room
  const { value: edit } = state.edit
  const sources = state.sources.value
  const [source] = sources
  const family = source ? familyOf(source.type) : null
  const operations = kinds.data.filter(({ object }) => object === 'operation')
  const fits = (kind: Kind) => kind.available && takes(kind, family)
  const asked = kindOf(room, edit.operation)
  const kind = asked && fits(asked) ? asked : (operations.find(fits) ?? null)
  const set = (change: Partial<Edit>) => (state.edit.value = { ...state.edit.peek(), ...change })

  const missing = kind ? missingOf(kind, edit, sources) : 'No operation takes this source.'
  const body = kind && missing === null ? bodyOf(kind, edit, sources) : null
  const quoted = useQuote(body)
  const showsSource = kind !== null && (needs(kind, 'mask_url') || has(kind, 'start_time'))
  return (
    <form class="form" onSubmit={(event) => event.preventDefault()}>
      {kind && has(kind, 'media_urls') && source ? <SourceList /> : <SourceInput isShownBelow={showsSource} />}
      <KindChoice
        label="Operation"
        // Those that do not take what was chosen would only push the rest down.
        kinds={operations.filter((each) => takes(each, family))}
        value={kind?.name ?? ''}
        choose={(operation) => set({ operation })}
      />
      {source && kind && <OperationFields edit={edit} set={set} source={source} kind={kind} />}
      <div class="room-spend">
        <PriceLine of={quoted} hint={missing ?? ''} isMost={kind !== null && priceOf(room, kind.name)?.per !== 'Job'} />
        <RequestCode body={body} />
        <CreateButton body={body} quoted={quoted} name="Run" />
      </div>
    </form>
  )
}
