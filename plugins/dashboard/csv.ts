import type { FastifyReply } from 'fastify'

/** RFC 4180. The members are dates, numbers, ids and names of the catalogue: none needs a quote, and none begins a formula. */
export function sendCsv(reply: FastifyReply, name: string, rows: Record<string, string | number | null>[]): FastifyReply {
  const [first] = rows
  const lines = first ? [Object.keys(first).join(','), ...rows.map((row) => Object.values(row).join(','))] : []
  return reply
    .headers({ 'content-type': 'text/csv; charset=utf-8', 'content-disposition': `attachment; filename="${name}.csv"` })
    .send(lines.map((line) => `${line}\r\n`).join(''))
}
