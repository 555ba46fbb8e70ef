/** Writes the tables of the documentation that follow from the code: `npm run docs`. `test/docs.test.ts` holds the pages against them. */
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { TObject, TSchema } from 'typebox'
import { SETTINGS } from '../src/config.ts'
import { DEFAULT_ENGINES, EnginesFile } from '../src/engines/routes.ts'
import { FAILURES } from '../src/errors.ts'
import { TASK_ERRORS } from '../src/tasks/task.ts'

function table(head: string[], rows: string[][]): string {
  const line = (cells: string[]) => `| ${cells.map((cell) => cell.replaceAll('|', '\\|')).join(' | ')} |`
  return [line(head), line(head.map(() => '---')), ...rows.map(line)].join('\n')
}

const code = (text: string) => (text === '' ? 'empty' : `\`${text}\``)

type Described = TSchema & { description?: string; minimum?: number; maximum?: number; enum?: string[]; items?: TSchema; properties?: Record<string, TSchema>; '~optional'?: true }

/** A row for each member of a schema, those within it after it. */
function members(schema: TObject, within = ''): string[][] {
  return Object.entries(schema.properties as Record<string, Described>).flatMap(([name, member]) => {
    const [path, inner] = [`${within}${name}`, member.items ?? member]
    const bounds = member.enum ? member.enum.map(code).join(', ') : member.minimum === undefined ? '' : `${member.minimum} to ${member.maximum}`
    const own = member.items ? [] : [[code(path), (schema.required ?? []).includes(name) ? 'yes' : '', bounds, member.description ?? '']]
    return [...own, ...('properties' in inner ? members(inner as TObject, `${path}${member.items ? '[]' : ''}.`) : [])]
  })
}

/** Each generated part: the page it stands on, its name in the page's markers, and its text. */
export const PARTS = [
  {
    page: 'errors.md',
    name: 'failures',
    text: table(['status', 'code', 'type', 'message'], Object.entries(FAILURES).map(([name, [status, type, sentence]]) => [String(status), code(name), code(type), sentence])),
  },
  {
    page: 'errors.md',
    name: 'task errors',
    text: table(['error.code', 'message'], Object.entries(TASK_ERRORS).map(([name, sentence]) => [code(name), sentence])),
  },
  { page: 'engines.md', name: 'default', text: `\`\`\`yaml\n${DEFAULT_ENGINES}\`\`\`` },
  { page: 'engines.md', name: 'members', text: table(['member', 'needed', 'may be', 'meaning'], members(EnginesFile)) },
  {
    page: 'configuration.md',
    name: 'settings',
    text: table(
      ['setting', 'default', 'may be', 'meaning'],
      Object.entries(SETTINGS).map(([name, { default: fallback, parse, meaning }]) => [code(name), code(fallback), parse.mayBe, meaning]),
    ),
  },
]

/** The page with its part between the markers replaced. Throws if the page lacks the markers. */
export function withPart(page: string, name: string, text: string): string {
  const begin = `<!-- generated: ${name} -->`
  const end = '<!-- end -->'
  const from = page.indexOf(begin)
  const to = page.indexOf(end, from)
  if (from < 0 || to < 0) throw new Error(`the page has no part ${begin} … ${end}`)
  return `${page.slice(0, from + begin.length)}\n${text}\n${page.slice(to)}`
}

if (import.meta.main) {
  for (const { page, name, text } of PARTS) {
    const file = join(import.meta.dirname, page)
    writeFileSync(file, withPart(readFileSync(file, 'utf8'), name, text))
  }
}
