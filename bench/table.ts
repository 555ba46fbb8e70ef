/** Results as Markdown, to be pasted into `docs/benchmarks.md`. */

export type Table = { title: string; head: string[]; rows: (string | number)[][]; note?: string }

export function markdown({ title, head, rows, note }: Table): string {
  const line = (cells: (string | number)[]): string => `| ${cells.join(' | ')} |`
  return [`### ${title}`, '', line(head), line(head.map((_, n) => (n === 0 ? '---' : '--:'))), ...rows.map(line), ...(note ? ['', note] : []), ''].join('\n')
}
