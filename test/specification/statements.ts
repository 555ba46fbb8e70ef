/** What the specification says, statement by statement, as tests compare it with docs/contract.md and with the program. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'

/** A sentence, or a row of a table with ` · ` between its cells; a row that holds several sentences is several statements. */
export type Statement = {
  /** Such as `6.2`; `0` is what comes before the first section, and `6.0` what a section says before its first subsection. */
  section: string
  text: string
}

const RULE = /^\|[\s|:-]+\|$/
const SPECIFICATION = readFileSync(join(import.meta.dirname, 'media-and-coding-plan-api.md'), 'utf8')

/** Every statement, in order. Headings and the heads of tables are left out. */
export const STATEMENTS: readonly Statement[] = statementsOf(SPECIFICATION)

/** The statements of a page of Markdown that is written like the specification. */
export function statementsOf(page: string): Statement[] {
  const lines = page.split('\n').filter((line) => line.trim() !== '')
  const parents = new Set([...page.matchAll(/^### (\d+)\./gm)].map(([, number]) => number))
  let section = '0'
  return lines.flatMap((line, at) => {
    if (line.startsWith('#')) {
      const number = /^#+ (\d+(?:\.\d+)?)/.exec(line)?.[1] ?? '0'
      section = parents.has(number) ? `${number}.0` : number
      return []
    }
    if (RULE.test(line) || RULE.test(lines[at + 1] ?? '')) return []
    const text = line.startsWith('|') ? line.slice(1, -1).split('|').map((cell) => cell.trim()).join(' · ') : line.replace(/^(\d+\.|[-*]) /, '')
    return text.split(/(?<=\.) (?=[A-Z])/).map((statement) => ({ section, text: statement }))
  })
}

/** The cells of every row of the tables in a section. */
export function rowsOf(section: string): string[][] {
  return STATEMENTS.filter((statement) => statement.section === section && statement.text.includes(' · ')).map(({ text }) => text.split(' · '))
}

/** The names of the data fields of an event (section 6.2), in order. */
export function dataFieldsOf(event: string): string[] {
  const own = STATEMENTS.filter(({ section }) => section === '6.2').map(({ text }) => text)
  const after = own.slice(own.indexOf(`${event}, data fields:`) + 1)
  const next = after.findIndex((text) => text.endsWith(':'))
  return (next < 0 ? after : after.slice(0, next)).map((text) => text.split(' · ', 1)[0] ?? '')
}

/** Every endpoint that the service has (sections 4.1 to 4.3), with its path as Fastify writes it, and the API whose keys it takes (section 5). */
export function endpoints(): { method: string; url: string; api: 'media' | 'coding' }[] {
  return ['4.1', '4.2', '4.3'].flatMap((section) =>
    rowsOf(section)
      .filter(([, path = '']) => path.startsWith('{base_url}'))
      .map(([method = '', path = '']) => ({
        method: method === 'MCP over HTTP' ? 'POST' : method,
        url: path.replace('{base_url}', '').replaceAll(/\{\w+\}/g, ':id'),
        api: section === '4.3' ? 'coding' : 'media',
      })),
  )
}
