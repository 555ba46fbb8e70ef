/** Writes a JSON answer: past the server's framework, whose serialization and hooks have nothing to add. */
import { disconnectStalled } from '../../http/stalled-clients.ts'
import type { AnswerWriter, Client, WriterOptions } from './answer-writer.ts'

export class JsonWriter implements AnswerWriter {
  readonly #client: Client
  readonly #options: WriterOptions
  #isStored = false
  #isClosed = false
  #held: { body: string; isEstimated: boolean } | null = null

  constructor(client: Client, options: WriterOptions) {
    this.#client = client
    this.#options = options
  }

  hasBegun(): boolean {
    return false
  }

  stored(): void {
    this.#isStored = true
    if (this.#held) this.#send(this.#held.body, this.#held.isEstimated)
    this.#held = null
  }

  /** A JSON answer has nothing to write before its end. */
  write(): void {}

  end(body: string, isEstimated: boolean): void {
    if (this.#isStored) this.#send(body, isEstimated)
    else this.#held = { body, isEstimated }
  }

  close(): void {
    this.#isClosed = true
  }

  #send(body: string, isEstimated: boolean): void {
    const { raw } = this.#client
    if (this.#isClosed || raw.destroyed) return
    this.#isClosed = true
    const length = Buffer.byteLength(body)
    const headers = this.#client.takeOver()
    if (isEstimated) headers[this.#options.usageHeader] = 'estimated'
    headers['content-type'] = 'application/json; charset=utf-8'
    headers['content-length'] = length
    raw.writeHead(200, headers)
    // ASCII is copied, where UTF-8 is encoded.
    raw.end(body, length === body.length ? 'latin1' : 'utf8')
    disconnectStalled(raw, this.#options.stalledMs)
  }
}
