/** Container format detection by the first bytes of a file. It fixes FFmpeg's demuxer, so that playlists, file lists and image patterns are never opened. */
import { open } from 'node:fs/promises'

/** A demuxer of FFmpeg that opens nothing but its own input. */
export type Container = {
  demuxer: 'mov' | 'matroska' | 'avi' | 'mpegts' | 'ogg' | 'mp3' | 'wav' | 'flac' | 'aac'
  /** Whether seeking finds the key frame before a time. Other containers are read from their beginning. */
  seekable: boolean
}

const HEAD_BYTES = 1024
const TS_PACKET_BYTES = 188
/** Top-level boxes that ISO base media and QuickTime files begin with. */
const BOXES = new Set(['ftyp', 'moov', 'mdat', 'wide', 'free', 'skip', 'pnot'])

const riffForm = (head: Buffer): string | null => (head.toString('latin1', 0, 4) === 'RIFF' ? head.toString('latin1', 8, 12) : null)

const CONTAINERS: readonly (Container & { matches(head: Buffer): boolean })[] = [
  { demuxer: 'mov', seekable: true, matches: (head) => BOXES.has(head.toString('latin1', 4, 8)) },
  { demuxer: 'matroska', seekable: true, matches: (head) => head.readUInt32BE(0) === 0x1a45dfa3 },
  { demuxer: 'avi', seekable: true, matches: (head) => riffForm(head) === 'AVI ' },
  { demuxer: 'wav', seekable: true, matches: (head) => riffForm(head) === 'WAVE' },
  { demuxer: 'flac', seekable: true, matches: (head) => head.toString('latin1', 0, 4) === 'fLaC' },
  { demuxer: 'ogg', seekable: false, matches: (head) => head.toString('latin1', 0, 4) === 'OggS' },
  { demuxer: 'mpegts', seekable: false, matches: (head) => [0, 1, 2].every((n) => head[n * TS_PACKET_BYTES] === 0x47) },
  // ADTS and MPEG audio share a 11-bit sync word; the layer bits, zero in ADTS, tell them apart.
  { demuxer: 'aac', seekable: false, matches: (head) => (head.readUInt16BE(0) & 0xfff6) === 0xfff0 },
  {
    demuxer: 'mp3',
    seekable: false,
    matches: (head) =>
      head.toString('latin1', 0, 3) === 'ID3' || ((head.readUInt16BE(0) & 0xffe0) === 0xffe0 && (head.readUInt8(1) & 6) !== 0),
  },
]

/** The container of a file; null when it is none of these. */
export async function containerOf(path: string): Promise<Container | null> {
  const file = await open(path)
  try {
    const { buffer, bytesRead } = await file.read(Buffer.alloc(HEAD_BYTES))
    if (bytesRead < 16) return null
    const found = CONTAINERS.find(({ matches }) => matches(buffer))
    return found ? { demuxer: found.demuxer, seekable: found.seekable } : null
  } finally {
    await file.close()
  }
}
