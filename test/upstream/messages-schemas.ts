/** Validation of answers of the Messages wire against the types of Anthropic's SDK (`messages-schema.json`, written by `generate-messages-schema.ts`). */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { Ajv } from 'ajv'

type Loose = any // oxlint-disable-line typescript/no-explicit-any -- answers are validated, not typed

const ajv = new Ajv({ strict: false, allErrors: true }).addSchema(JSON.parse(readFileSync(join(import.meta.dirname, 'messages-schema.json'), 'utf8')), 'messages')

const EVENTS: Record<string, string> = {
  message_start: 'RawMessageStartEvent',
  content_block_start: 'RawContentBlockStartEvent',
  content_block_delta: 'RawContentBlockDeltaEvent',
  content_block_stop: 'RawContentBlockStopEvent',
  message_delta: 'RawMessageDeltaEvent',
  message_stop: 'RawMessageStopEvent',
  error: 'ErrorResponse',
}

/** Throws with the errors when a value is not of this type of the SDK. */
export function checkMessages(schema: 'Message' | 'MessageTokensCount' | 'ErrorResponse' | 'ModelInfo' | (string & {}), value: Loose): void {
  // Its documentation has this type of errors, its types do not.
  if (value?.error?.type === 'request_too_large') return checkMessages(schema, { ...value, error: { ...value.error, type: 'api_error' } })
  const validate = ajv.getSchema(`messages#/definitions/${schema}`)
  if (!validate) throw new Error(`the SDK has no ${schema}`)
  if (!validate(value)) throw new Error(`${schema}: ${ajv.errorsText(validate.errors?.slice(-8) ?? [])} in ${JSON.stringify(value).slice(0, 2000)}`)
}

/** Checks an answer of `POST /v1/messages` or `…/count_tokens`. */
export function checkMessagesJson(value: Loose): void {
  checkMessages(value?.type === 'error' ? 'ErrorResponse' : value?.type === 'message' ? 'Message' : 'MessageTokensCount', value)
}

/** Checks a whole stream: each event, their order, one open block at a time with deltas of its type, no empty text block, and an end by `message_stop` or `error`. */
export function checkMessagesStream(text: string): void {
  const events = text.split('\n\n').filter((block) => block !== '' && !block.startsWith(':')).map((block) => {
    const [, name, data] = /^event: (\w+)\ndata: (.*)$/.exec(block) ?? []
    if (data === undefined) throw new Error(`not an event of the wire: ${block}`)
    const event = JSON.parse(data) as Loose
    if (event.type !== name) throw new Error(`the event ${name} has the type ${event.type}`)
    return event
  })
  let open: { index: number; type: string; deltas: string[] } | null = null
  let next = 0
  for (const [at, event] of events.entries()) {
    if (event.type === 'ping') continue
    checkMessages(EVENTS[event.type] ?? event.type, event)
    const fail = (what: string): never => {
      throw new Error(`event ${at}, ${JSON.stringify(event)}: ${what}`)
    }
    if (event.type === 'content_block_start') {
      if (open || event.index !== next) fail('it starts out of order')
      open = { index: next++, type: event.content_block.type, deltas: [] }
    } else if (event.type === 'content_block_delta') {
      if (open?.index !== event.index) fail('its block is not open')
      if (!DELTAS[event.delta.type]?.includes(open?.type ?? '')) fail(`its block is of the type ${open?.type}`)
      open?.deltas.push(event.delta.type)
    } else if (event.type === 'content_block_stop') {
      if (open?.index !== event.index) fail('its block is not open')
      if (open?.type === 'text' && open.deltas.length === 0) fail('its text block is empty')
      if (open?.type === 'thinking' && open.deltas.at(-1) !== 'signature_delta') fail('its thinking has no signature')
      open = null
    } else if (event.type === 'message_delta' && open) fail('a block is open')
  }
  const types = events.map(({ type }) => type).filter((type) => type !== 'ping')
  const [first, beforeLast, last] = [types[0], types.at(-2), types.at(-1)]
  if (last !== 'error' && (first !== 'message_start' || beforeLast !== 'message_delta' || last !== 'message_stop')) throw new Error(`the stream has ${types.join(', ')}`)
}

/** The types of blocks that a delta extends. */
const DELTAS: Record<string, string[]> = {
  text_delta: ['text'],
  thinking_delta: ['thinking'],
  signature_delta: ['thinking'],
  input_json_delta: ['tool_use', 'server_tool_use'],
  citations_delta: ['text'],
}

/** The value, once it passed the check. */
export function valid<T>(check: (value: T) => void, value: T): T {
  check(value)
  return value
}
