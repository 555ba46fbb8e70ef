/** Results as Markdown, to be pasted into `bench/notes/`. */

export type Table = { title: string; head: string[]; rows: (string | number)[][]; note?: string }

export function markdown({ title, head, rows, note }: Table): string {
  const row = (cells: (string | number)[]): string => `| ${cells.join(' | ')} |`
  return [`### ${title}`, '', row(head), row(head.map((_, n) => (n === 0 ? '---' : '--:'))), ...rows.map(row), ...(note ? ['', note] : []), ''].join('\n')
}
