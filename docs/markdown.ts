/** The pieces of Markdown that generated parts of the documentation are made of. */

/** A table of cells, which are Markdown themselves. */
export function table(head: string[], rows: string[][]): string {
  const line = (cells: string[]) => `| ${cells.map((cell) => cell.replaceAll('|', '\\|')).join(' | ')} |`
  return [line(head), line(head.map(() => '---')), ...rows.map(line)].join('\n')
}

export const code = (text: string) => (text === '' ? 'empty' : `\`${text}\``)
