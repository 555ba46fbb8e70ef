/** The members of a request that have equal name and meaning on the Chat and the Responses wire. */
import { own, type Members } from '../wires/allowlist.ts'

const SHARED = [
  'temperature',
  'top_p',
  'presence_penalty',
  'frequency_penalty',
  'metadata',
  'prompt_cache_key',
  'safety_identifier',
  'service_tier',
  'user',
]

/** Adds those that the body has, and that are not null, to what is `built` of it. */
export function addShared(body: Members, built: Members): void {
  for (const name of SHARED) if ((own(body, name) ?? null) !== null) built[name] = own(body, name)
}
