/** Blocks of code on a page of the documentation, for tests that run them as they stand. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'

export type Block = {
  /** The heading that it is under, without its signs. */
  section: string
  /** Such as `sh` and `yaml`; '' without one. */
  language: string
  text: string
}

/** The blocks of a page, such as `docs/chart.md`, in their order. Those in lists are without the list's indentation. */
export function blocksOf(page: string): Block[] {
  const blocks: Block[] = []
  let section = ''
  const text = readFileSync(join(import.meta.dirname, '..', page), 'utf8')
  for (const [, heading, indentation = '', language = '', body = ''] of text.matchAll(/^#+ (.*)$|^( *)```(\w*)\n([^]*?)^ *```$/gm)) {
    if (heading !== undefined) section = heading
    else blocks.push({ section, language, text: body.replaceAll(new RegExp(`^${indentation}`, 'gm'), '') })
  }
  return blocks
}

/** The blocks of commands in a section. Throws if it has none. */
export function commandsOf(page: string, section: string): string[] {
  const commands = blocksOf(page).filter((block) => block.section === section && block.language === 'sh')
  if (commands.length === 0) throw new Error(`${page} has no commands in ${section}`)
  return commands.map(({ text }) => text)
}
