/** The commands in the text of the runbooks, as they stand. */
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'

const FOLDER = join(import.meta.dirname, '../../docs/runbooks')

/** `command` has its placeholders, such as `<namespace>`. */
export function runbookCommands(): { page: string; command: string }[] {
  return readdirSync(FOLDER).flatMap((page) => {
    const [, text = ''] = readFileSync(join(FOLDER, page), 'utf8').split('## What to do')
    return [...text.matchAll(/`((?:kubectl|helm|tollgate|npx) [^`]+)`/g)].map(([, command = '']) => ({ page, command }))
  })
}
