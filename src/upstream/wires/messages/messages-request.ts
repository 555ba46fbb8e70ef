/** `POST /v1/messages`: validates the request and makes the upstream call. */
import { Failure } from '../../../domain/errors.ts'
import type { Ids } from '../encrypted-ids.ts'
import { checkTypes, invalid, readBody, readBoolean, readCount, type MemberTypes } from '../coding-request-validation.ts'
import { isMembers, own, ownText, type Members } from '../allowlist.ts'
import { answeringMessages } from '../../translation/messages-to-responses/messages-to-responses.ts'
import { asksForThinking, responsesBody } from '../../translation/messages-to-responses/responses-body.ts'
import type { Place } from '../../translation/messages-to-responses/input-items.ts'
import { readResponsesRequest } from '../responses/responses-request.ts'
import type { CodingRequest, UpstreamCall, WireName } from '../wire.ts'

const MEMBERS: MemberTypes = {
  messages: 'objects',
  system: 'string or objects',
  tools: 'objects',
  tool_choice: 'object',
  thinking: 'object',
  output_config: 'object',
  metadata: 'object',
  stop_sequences: 'strings',
  temperature: 'number',
  top_p: 'number',
  top_k: 'number',
}
const MESSAGE: MemberTypes = { role: 'string', content: 'string or objects' }
/** The required members of content blocks by type. */
const BLOCKS: Record<string, MemberTypes> = {
  text: { text: 'string' },
  tool_use: { id: 'string', name: 'string' },
  tool_result: { tool_use_id: 'string' },
  image: { source: 'object' },
  document: { source: 'object' },
}
const MAX_SEQUENCES = 16
const MAX_SEQUENCE_LENGTH = 256

/** A valid body of the wire. */
export type MessagesBody = Members & { messages: Members[] }

/**
 * Validates a body for both endpoints. Throws `invalid_request` naming the parameter, and `model_not_found`. Unknown members pass without
 * effect: clients of this wire send new ones with every release.
 */
export function checkMessagesBody(value: unknown): MessagesBody {
  const body = readBody(value)
  checkTypes(body, MEMBERS)
  const messages = own(body, 'messages')
  if (!Array.isArray(messages) || messages.length === 0) throw invalid('messages', 'messages is required, with at least one message.')
  for (const [index, message] of (messages as Members[]).entries()) checkMessage(message, `messages[${index}]`)
  for (const [index, tool] of ((own(body, 'tools') ?? []) as Members[]).entries()) checkTool(tool, `tools[${index}]`)
  const sequences = (own(body, 'stop_sequences') ?? []) as string[]
  if (sequences.length > MAX_SEQUENCES || sequences.some(({ length }) => length > MAX_SEQUENCE_LENGTH))
    throw invalid(
      'stop_sequences',
      `stop_sequences: at most ${MAX_SEQUENCES} sequences of at most ${MAX_SEQUENCE_LENGTH} characters are supported.`,
    )
  return body as MessagesBody
}

function checkMessage(message: Members, path: string): void {
  checkTypes(message, MESSAGE, `${path}.`)
  if (!['user', 'assistant', 'system'].includes(ownText(message, 'role')))
    throw invalid(`${path}.role`, `${path}.role must be user, assistant or system.`)
  const content = own(message, 'content') ?? null
  if (content === null) throw invalid(`${path}.content`, `${path}.content is required.`)
  if (Array.isArray(content)) checkBlocks(content as Members[], `${path}.content`)
}

function checkBlocks(blocks: readonly Members[], path: string): void {
  for (const [index, block] of blocks.entries()) {
    const place = `${path}[${index}]`
    const type = own(block, 'type')
    if (typeof type !== 'string') throw invalid(`${place}.type`, `${place}.type must be a string.`)
    const required = Object.hasOwn(BLOCKS, type) ? (BLOCKS[type] ?? {}) : {}
    for (const name in required) if ((own(block, name) ?? null) === null) throw invalid(`${place}.${name}`, `${place}.${name} is required.`)
    checkTypes(block, type === 'tool_result' ? { ...required, content: 'string or objects' } : required, `${place}.`)
    const inner = own(block, 'content')
    if (type === 'tool_result' && Array.isArray(inner)) checkBlocks(inner as Members[], `${place}.content`)
  }
}

function checkTool(tool: Members, path: string): void {
  const type = own(tool, 'type') ?? 'custom'
  if (typeof type !== 'string') throw invalid(`${path}.type`, `${path}.type must be a string.`)
  if (type !== 'custom') return
  if (ownText(tool, 'name') === '') throw invalid(`${path}.name`, `${path}.name must be a string.`)
  if (!isMembers(own(tool, 'input_schema'))) throw invalid(`${path}.input_schema`, `${path}.input_schema must be an object.`)
}

/**
 * Validates a parsed body. `promptTokens`: estimates the tokens of a body of the Responses wire; the
 * beginning of a stream tells it. Throws `invalid_request` naming the parameter,
 * and `model_not_found`.
 */
export function readMessagesRequest(value: unknown, allowed: ReadonlySet<string>, promptTokens: (built: Members) => number): CodingRequest {
  const body = checkMessagesBody(value)
  if (own(body, 'max_tokens') === undefined)
    throw invalid('max_tokens', 'max_tokens is required: the most tokens that the answer may have.')
  const limit = own(body, 'max_tokens') === -1 ? null : readCount(body, 'max_tokens')
  const stream = readBoolean(body, 'stream')
  const { body: built, places } = responsesBody(body)
  const request = readResponsesRequest(built, allowed)
  const context = {
    thinking: asksForThinking(body),
    stopSequences: ((own(body, 'stop_sequences') ?? []) as string[]).filter((sequence) => sequence !== ''),
    promptTokens: Math.max(1, promptTokens(built)),
  }
  return {
    stream,
    choices: 1,
    maxOutputTokens: limit,
    addresses: request.addresses.map((address) => ({ ...address, param: `${placeOf(address.param, places)}.source` })),
    call(cap: number, ids: Ids, now: () => number, wires: readonly WireName[]): UpstreamCall {
      try {
        return answeringMessages(request.call(cap, ids, now, wires), context)
      } catch (error) {
        throw error instanceof Failure ? ofThisWire(error, places) : error
      }
    },
  }
}

/** The failure with the path of the client's request. */
function ofThisWire(failure: Failure, places: readonly Place[]): Failure {
  const { param } = failure.facts
  if (typeof param !== 'string' || !param.startsWith('input[')) return failure
  const place = placeOf(param, places)
  return new Failure(failure.code, { param: place, message: `The model does not support ${place} on this endpoint at present.` })
}

const PATH = /^input\[(\d+)\](?:\.(?:content|output)\[(\d+)\])?/

/** The place in the client's request of a path in the translated one. */
function placeOf(path: string, places: readonly Place[]): string {
  const [, item, part] = PATH.exec(path) ?? []
  const place = places[Number(item)]
  return (part === undefined ? undefined : place?.parts[Number(part)]) ?? place?.item ?? 'messages'
}
