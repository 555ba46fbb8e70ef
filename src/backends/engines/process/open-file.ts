/** The bytes of a result in an open file that has, or soon has, no name: its space is free again once it is closed, however the process ends. */
import * as fs from 'node:fs'
import { promisify } from 'node:util'

export type OpenFile = {
  /** Up to `length` bytes from an offset. */
  read(at: number, length: number): Promise<Uint8Array>
  /** May be read more than once, until `release`. */
  body: AsyncIterable<Uint8Array>
  /** Closes the file. Twice is harmless. */
  release(): Promise<void>
}

const PIECE_BYTES = 64 * 1024

// By descriptors rather than Node's file handles, which complain when they are collected open.
const close = promisify(fs.close)
const read = promisify(fs.read)

/** Closes what nobody has released: the result of a run that was aborted. */
const abandoned = new FinalizationRegistry<number>((file) => fs.close(file, () => {}))

/** Takes over the descriptor of a file of so many bytes. */
export function openFile(file: number, bytes: number): OpenFile {
  const opened: OpenFile = {
    async read(at, length) {
      const buffer = Buffer.alloc(Math.max(0, Math.min(length, bytes - at)))
      const { bytesRead } = await read(file, buffer, 0, buffer.length, at)
      return buffer.subarray(0, bytesRead)
    },
    body: {
      async *[Symbol.asyncIterator]() {
        for (let at = 0; at < bytes; at += PIECE_BYTES) yield await opened.read(at, PIECE_BYTES)
      },
    },
    async release() {
      if (abandoned.unregister(opened)) await close(file)
    },
  }
  abandoned.register(opened, file, opened)
  return opened
}
