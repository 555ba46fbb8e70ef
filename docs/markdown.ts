/** Markdown tables and code of the generated documentation. */

/** A table of cells, which are Markdown themselves. */
export function table(head: string[], rows: string[][]): string {
  const row = (cells: string[]) => `| ${cells.map((cell) => cell.replaceAll('|', '\\|')).join(' | ')} |`
  return [row(head), row(head.map(() => '---')), ...rows.map(row)].join('\n')
}

export const code = (text: string) => (text === '' ? 'empty' : `\`${text}\``)
