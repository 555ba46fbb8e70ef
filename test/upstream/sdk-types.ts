/** The members of request types in the SDKs of OpenAI and Anthropic. `npm run servers` installs them. */
import { readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import type { Test } from 'tap'
import { need } from '../servers/client.ts'

/** The text of a file of types of an SDK; null, with the suite skipped, when it is not installed. */
export function sdkTypes(t: Test, server: 'anthropic-node' | 'openai-node', file: string): string | null {
  const path = need(t, server)
  return path === null ? null : readFileSync(join(dirname(path), 'resources', file), 'utf8')
}

/** The names of the members of an interface. Throws where there is none. */
export function membersOf(types: string, name: string, ending = '\\??:'): string[] {
  const [head, indent = ''] = new RegExp(`^( *)(?:export )?interface ${name}(?: extends [^{]+)? \\{`, 'm').exec(types) ?? []
  if (head === undefined) throw new Error(`no interface ${name}`)
  const from = types.indexOf(head)
  const body = types.slice(from, types.indexOf(`\n${indent}}`, from))
  return [...body.matchAll(new RegExp(`^${indent}    (\\w+)${ending}`, 'gm'))].map(([, member = '']) => member)
}

export const requiredMembersOf = (types: string, name: string): string[] => membersOf(types, name, ':')

/** The values of the member `type` of the interfaces that a union has, in order. */
export function typesIn(types: string, union: string): string[] {
  const alternatives = new RegExp(`^export type ${union} = ([^;]+);`, 'm').exec(types)?.[1]?.split(' | ') ?? []
  return alternatives.flatMap((name) => {
    const [head, indent = ''] = new RegExp(`^( *)(?:export )?interface ${name.split('.').at(-1)}(?: extends [^{]+)? \\{`, 'm').exec(types) ?? []
    if (head === undefined) throw new Error(`no interface ${name}`)
    const from = types.indexOf(head)
    const body = types.slice(from, types.indexOf(`\n${indent}}`, from))
    const type = new RegExp(`^${indent}    type\\??: ([^;]+);`, 'm').exec(body)?.[1] ?? ''
    return [...type.matchAll(/'([^']+)'/g)].map(([, value = '']) => value)
  })
}
