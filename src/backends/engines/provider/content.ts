/**
 * The bytes of a result between the provider and the files backend: measured here, then passed on. Small results are in memory, large
 * ones in an unlinked file, which a crash removes.
 */
import { randomUUID } from 'node:crypto'
import * as fs from 'node:fs'
import { unlink } from 'node:fs/promises'
import { join } from 'node:path'
import { Writable } from 'node:stream'
import { promisify } from 'node:util'
import { openFile } from '../process/open-file.ts'
import { TooLarge } from './api-requests.ts'

export type Content = {
  bytes: number
  /** Up to `length` bytes from an offset. */
  read(at: number, length: number): Promise<Uint8Array>
  /** The bytes, to be passed on: they may be read more than once, until `release`. */
  body: Uint8Array | AsyncIterable<Uint8Array>
  /** Frees the bytes. Twice is harmless. */
  release(): Promise<void>
}

/** A result that is still arriving. */
export type Spool = {
  sink: Writable
  /** Once the sink has ended. */
  content(): Content
  /** Frees what has arrived, where the rest will not. */
  drop(): Promise<void>
}

/** More than this goes to a file. */
const MEMORY_BYTES = 1024 * 1024

const open = promisify(fs.open)
const close = promisify(fs.close)
const append = promisify<number, Uint8Array, void>(fs.writeFile)

/** The content of bytes in memory. */
export function contentOf(bytes: Uint8Array): Content {
  return {
    bytes: bytes.length,
    read: async (at, length) => bytes.subarray(at, at + length),
    body: bytes,
    async release() {},
  }
}

/** Opens a sink for at most `maxBytes`; with more it fails with `TooLarge`. */
export function openSpool(folder: string, maxBytes: number): Spool {
  let chunks: Uint8Array[] = []
  let bytes = 0
  let file: number | null = null
  let writing: Promise<void> | null = null

  async function write(chunk: Uint8Array): Promise<void> {
    bytes += chunk.length
    if (bytes > maxBytes) throw new TooLarge(`the result is larger than ${maxBytes} bytes`)
    chunks.push(chunk)
    if (bytes <= MEMORY_BYTES) return
    file ??= await openNameless(folder)
    await append(file, Buffer.concat(chunks))
    chunks = []
  }

  return {
    sink: new Writable({
      write(chunk: Uint8Array, _encoding, written) {
        writing = write(chunk).then(() => written(null), written)
      },
    }),
    content: () => (file === null ? contentOf(Buffer.concat(chunks)) : { bytes, ...openFile(file, bytes) }),
    async drop() {
      // A sink that was destroyed has not waited for its last write, which may open the file.
      await writing
      chunks = []
      if (file !== null) await close(file)
      file = null
    },
  }
}

/** A file without a name: its space is free again once it is closed, however the process ends. */
async function openNameless(folder: string): Promise<number> {
  const path = join(folder, `tollgate-${randomUUID()}`)
  const file = await open(path, 'wx+', 0o600)
  await unlink(path)
  return file
}
