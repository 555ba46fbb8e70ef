/** Which container a file is, by its first bytes. The demuxer that reads it is fixed by this: playlists, image patterns and lists of files are never tried. */
import { open } from 'node:fs/promises'

/** A demuxer of FFmpeg that opens nothing but its own input. */
export type Container = {
  demuxer: 'mov' | 'matroska' | 'avi' | 'mpegts' | 'ogg' | 'mp3' | 'wav' | 'flac' | 'aac'
  /** Whether it has an index, so that reading may begin at a key frame before a time and nothing is lost. Others are read from their beginning. */
  indexed: boolean
}

const HEAD_BYTES = 1024
const TS_PACKET_BYTES = 188
/** Top-level boxes with which ISO base media and QuickTime files begin. */
const BOXES = new Set(['ftyp', 'moov', 'mdat', 'wide', 'free', 'skip', 'pnot'])

const CONTAINERS: readonly (Container & { matches(head: Buffer): boolean })[] = [
  { demuxer: 'mov', indexed: true, matches: (head) => BOXES.has(head.toString('latin1', 4, 8)) },
  { demuxer: 'matroska', indexed: true, matches: (head) => head.readUInt32BE(0) === 0x1a45dfa3 },
  { demuxer: 'avi', indexed: true, matches: (head) => riff(head) === 'AVI ' },
  { demuxer: 'wav', indexed: true, matches: (head) => riff(head) === 'WAVE' },
  { demuxer: 'flac', indexed: true, matches: (head) => head.toString('latin1', 0, 4) === 'fLaC' },
  { demuxer: 'ogg', indexed: false, matches: (head) => head.toString('latin1', 0, 4) === 'OggS' },
  { demuxer: 'mpegts', indexed: false, matches: (head) => [0, 1, 2].every((n) => head[n * TS_PACKET_BYTES] === 0x47) },
  // ADTS and MPEG audio share their first 11 bits; the layer, which ADTS sets to 0, tells them apart.
  { demuxer: 'aac', indexed: false, matches: (head) => (head.readUInt16BE(0) & 0xfff6) === 0xfff0 },
  { demuxer: 'mp3', indexed: false, matches: (head) => head.toString('latin1', 0, 3) === 'ID3' || ((head.readUInt16BE(0) & 0xffe0) === 0xffe0 && (head[1]! & 6) !== 0) },
]

const riff = (head: Buffer): string | null => (head.toString('latin1', 0, 4) === 'RIFF' ? head.toString('latin1', 8, 12) : null)

/** The container of a file, or null when it is none of those that are read here. */
export async function containerOf(path: string): Promise<Container | null> {
  const file = await open(path)
  try {
    const { buffer, bytesRead } = await file.read(Buffer.alloc(HEAD_BYTES))
    if (bytesRead < 16) return null
    const found = CONTAINERS.find(({ matches }) => matches(buffer))
    return found ? { demuxer: found.demuxer, indexed: found.indexed } : null
  } finally {
    await file.close()
  }
}
