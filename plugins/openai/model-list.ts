/** Body of `GET /v1/models`: OpenAI's list (`data`) and the model catalogue of Codex (`models`) in one. */
import { MODEL } from '../../src/upstream/wires/model-name.ts'
import { codexModel } from './codex-catalogue.ts'

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

/** Body of `GET /v1/models` for clients of the Messages wire. */
export function messagesModelList(contextWindow: number | null): object {
  return { data: [messagesModelEntry(contextWindow)], has_more: false, first_id: MODEL, last_id: MODEL }
}

/** The list of the one model. `contextWindow` in tokens, or null when no upstream declares one. */
export function modelList(contextWindow: number | null): object {
  return { object: 'list', data: [modelEntry(contextWindow)], models: [codexModel(contextWindow)] }
}
