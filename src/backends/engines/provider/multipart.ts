/** multipart/form-data (RFC 7578) of known length, that can be sent more than once without being held as a whole. */
import { randomUUID } from 'node:crypto'
import type { Body } from './api-requests.ts'

export type Part =
  | { name: string; value: string }
  | { name: string; filename: string; contentType: string; bytes: number; stream(): AsyncIterable<Uint8Array> | Iterable<Uint8Array> }

/** A part of bytes that are here. */
export function filePart(name: string, filename: string, { bytes, contentType }: { bytes: Uint8Array; contentType: string }): Part {
  return { name, filename, contentType, bytes: bytes.length, stream: () => [bytes] }
}

/** Names come from us and from the operator's file; a quote or a line break in one is escaped as browsers do. */
const escaped = (text: string): string => text.replaceAll('"', '%22').replaceAll('\r', '%0D').replaceAll('\n', '%0A')

/** The body of these parts, with a random boundary. */
export function multipart(parts: readonly Part[]): Body {
  const boundary = `tollgate-${randomUUID()}`
  const sections = parts.map((part) => {
    const file = 'filename' in part ? `; filename="${escaped(part.filename)}"\r\ncontent-type: ${part.contentType}` : ''
    return { head: Buffer.from(`--${boundary}\r\ncontent-disposition: form-data; name="${escaped(part.name)}"${file}\r\n\r\n`), part }
  })
  const end = Buffer.from(`--${boundary}--\r\n`)
  const contentBytes = (part: Part): number => ('filename' in part ? part.bytes : Buffer.byteLength(part.value))
  return {
    contentType: `multipart/form-data; boundary=${boundary}`,
    bytes: sections.reduce((sum, { head, part }) => sum + head.length + contentBytes(part) + 2, end.length),
    async *stream() {
      for (const { head, part } of sections) {
        yield head
        if ('filename' in part) yield* part.stream()
        else yield Buffer.from(part.value)
        yield Buffer.from('\r\n')
      }
      yield end
    },
  }
}
