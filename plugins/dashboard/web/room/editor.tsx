/** The form of an operation: its source, which operation, the parameters, the price, and the button that spends it. */
import { useEffect, useState } from 'preact/hooks'
import { CreateButton } from './create-button.tsx'
import { KindChoice } from './kind-choice.tsx'
import type { Kind } from './media-api.ts'
import { completeBody, EMPTY_EDIT, isTooLarge, type Edit } from './operation-body.ts'
import { OperationFields } from './operation-fields.tsx'
import { PriceLine, useQuote } from './price.tsx'
import { kindOf, priceOf, useRoom } from './room-state.ts'
import { SourceInput } from './source-input.tsx'
import { SourceList } from './source-list.tsx'
import { familyOf } from './labels.ts'

const FILMS = ['trim', 'merge']
/** Operations whose fields show the source themselves. */
const SHOW_THE_SOURCE = ['inpaint', 'trim']

/** Why an operation does not take these sources; null when it does. */
function refusalOf(operation: string, family: string | null): string | null {
  if (family === null) return null
  if (FILMS.includes(operation)) return family === 'image' ? 'For video and audio' : null
  return family === 'image' ? null : 'For images'
}

export function Editor() {
  const room = useRoom()
  const { state, kinds } = room
  const [edit, setEdit] = useState<Edit>(EMPTY_EDIT)
  const sources = state.sources.value
  const [source] = sources
  const family = source ? familyOf(source.type) : null
  const operations = kinds.data.filter(({ object }) => object === 'operation')
  const fits = (kind: Kind | null) => kind !== null && kind.available && refusalOf(kind.verb, family) === null
  const chosen = fits(kindOf(room, edit.operation)) ? edit.operation : (operations.find(fits)?.verb ?? edit.operation)
  const set = (change: Partial<Edit>) => setEdit((before) => ({ ...before, ...change }))

  // Marks and times belong to the source they were made on.
  useEffect(() => set({ mask: null, start: 0, end: null }), [source?.url])

  const kind = kindOf(room, chosen)
  const wanted = { ...edit, operation: chosen }
  const body = fits(kind) && !(source && isTooLarge(wanted, source, kind)) ? completeBody(wanted, sources) : null
  const quoted = useQuote(body)
  return (
    <form class="form" onSubmit={(event) => event.preventDefault()}>
      {chosen === 'merge' && sources.length > 0 ? <SourceList /> : <SourceInput isShownBelow={SHOW_THE_SOURCE.includes(chosen)} />}
      <KindChoice
        label="Operation"
        kinds={operations}
        value={chosen}
        choose={(operation) => set({ operation })}
        refuse={(kind) => refusalOf(kind.verb, family)}
      />
      {source && <OperationFields edit={wanted} set={set} source={source} kind={kind} />}
      <div class="room-spend">
        <PriceLine
          of={quoted}
          hint={hintOf(wanted, sources.length)}
          isMost={priceOf(room, chosen)?.per !== 'Job' && (chosen !== 'trim' || edit.end === null)}
        />
        <CreateButton body={body} quoted={quoted} name="Run" />
      </div>
    </form>
  )
}

function hintOf({ operation, scale }: Edit, count: number): string {
  if (count === 0) return 'Choose a source, and the price appears here.'
  if (operation === 'upscale') return scale > 2 ? 'Choose a smaller factor, or a smaller image.' : 'Choose a smaller image.'
  if (operation === 'merge') return 'Add at least one more video or audio file.'
  if (operation === 'trim') return 'Move a handle, and the price appears here.'
  if (operation === 'inpaint') return 'Mark what to replace, and say what should be there.'
  return 'Say what to change, and the price appears here.'
}
