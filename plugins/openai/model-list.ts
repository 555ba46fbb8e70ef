/** The one model as OpenAI and Anthropic list it. */
import { MODEL } from '../../src/upstream/wires/model-name.ts'

/** The required `created` of OpenAI's list, epoch seconds. */
const CREATED = 1_767_225_600

/** OpenAI's entry of the one model. `contextWindow` in tokens, or null when no upstream declares one. */
export function modelEntry(contextWindow: number | null): object {
  return {
    id: MODEL,
    object: 'model',
    created: CREATED,
    owned_by: 'svc',
    ...(contextWindow === null ? {} : { context_window: contextWindow }),
  }
}

/** Anthropic's entry of the one model. */
export function messagesModelEntry(contextWindow: number | null): object {
  return {
    type: 'model',
    id: MODEL,
    display_name: MODEL,
    created_at: new Date(CREATED * 1000).toISOString().replace('.000Z', 'Z'),
    max_input_tokens: contextWindow,
    max_tokens: null,
    capabilities: null,
    deprecated_at: null,
    lifecycle: 'active',
    line: null,
    retires_at: null,
  }
}
