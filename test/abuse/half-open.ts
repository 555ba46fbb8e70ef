/** A client that sends the head and parts of a request, and no end. */
import { connect } from 'node:net'

const MIB = 1024 * 1024

export type HalfOpen = {
  /** Resolves once the parts were taken, or the connection is closed. */
  sent: Promise<void>
  closed: Promise<void>
  write(part: Buffer): void
  /** Reads no more of the answer. */
  pause(): void
  close(): void
}

/** A POST with a JSON body, unless `headers` say otherwise, whose answer is read and ignored. */
export function halfOpen({ url }: { url: string }, path: string, key: string, headers: string[], parts: Iterable<Buffer>): HalfOpen {
  const { hostname, port } = new URL(url)
  const socket = connect(Number(port), hostname)
  socket.on('error', () => {}).resume()
  const closed = new Promise<void>((resolve) => socket.on('close', () => resolve()))
  const sent = new Promise<void>((resolve) => {
    void closed.then(resolve)
    const type = headers.some((line) => line.startsWith('Content-Type:')) ? [] : ['Content-Type: application/json']
    socket.write([`POST ${path} HTTP/1.1`, `Host: ${hostname}:${port}`, `Authorization: Bearer ${key}`, ...type, ...headers, '', ''].join('\r\n'))
    for (const part of parts) socket.write(part)
    socket.write('', () => resolve())
  })
  return { sent, closed, write: (part) => void socket.write(part), pause: () => void socket.pause(), close: () => socket.destroy() }
}

/** `{"model":"` and then one long string, which never ends. */
export const longString = (bytes: number): Buffer[] => [Buffer.from('{"model":"'), Buffer.alloc(bytes, 'x')]

/** The same in chunks of so many bytes (RFC 9112, section 7.1). */
export function* chunks(count: number, bytes: number): Generator<Buffer> {
  const chunk = Buffer.from(`${bytes.toString(16)}\r\n${'x'.repeat(bytes)}\r\n`)
  yield Buffer.from('1\r\n"\r\n')
  for (let n = 0; n < count; n += 64) yield Buffer.concat(Array.from({ length: 64 }, () => chunk))
}

/** The signature of a PNG, and nothing that follows it. */
export const PNG_BEGIN = Buffer.concat([Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]), Buffer.alloc(4 * MIB)])

/** A part of multipart/form-data that does not end. */
export const FORM_BEGIN = Buffer.concat([Buffer.from('--x\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'), Buffer.alloc(8 * MIB)])
