/** The name of the one model that clients know, and other names that they may ask for it by (`MODEL_ALIASES`). */
import { isMembers, own } from './allowlist.ts'

export const MODEL = 'svc-code'

/** Longer names are no model's. */
const MAX_NAME = 200

/** Whether a name means the model. `patterns`: names in which `*` stands for any text. */
export function openModelNames(patterns: readonly string[]): (name: string) => boolean {
  const all = patterns.map((pattern) => new RegExp(`^${pattern.split('*').map(RegExp.escape).join('.*')}$`))
  return (name) => name === MODEL || (name.length <= MAX_NAME && all.some((pattern) => pattern.test(name)))
}

/** Puts the name of the model into a body in place of another one for it. */
export function replaceAlias(body: unknown, isModel: (name: string) => boolean): void {
  if (isMembers(body) && typeof body['model'] === 'string' && isModel(body['model'])) body['model'] = MODEL
}

/** A body that need not name the model, as one that names it. */
export function withModel(body: unknown): unknown {
  return isMembers(body) && (own(body, 'model') ?? null) === null ? { ...body, model: MODEL } : body
}
