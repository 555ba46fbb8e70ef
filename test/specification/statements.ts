/** The specification, statement by statement, for tests that compare it with docs/contract.md and with the program. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'

/** A sentence, or a row of a table with ` · ` between its cells; a row that holds several sentences is several statements. */
export type Statement = {
  /** Such as `6.2`. `0` precedes the first section; `6.0` is the text of section 6 before its first subsection. */
  section: string
  text: string
}

const RULE = /^\|[\s|:-]+\|$/
const SPECIFICATION = readFileSync(join(import.meta.dirname, 'media-and-coding-plan-api.md'), 'utf8')

/** Every statement, in order, without headings and table heads. */
export const STATEMENTS: readonly Statement[] = statementsOf(SPECIFICATION)

/** The statements of a Markdown page that is formatted like the specification. */
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

/** The endpoints of the service (sections 4.1 to 4.3): method, Fastify's path, and the API whose keys it accepts (section 5). */
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
