/** The facts of a header. Null: the header lacks it, or has it beyond the given bytes. */
export type Header = {
  /** Pixels as displayed: turned as EXIF or the track's matrix says. */
  width: number | null
  height: number | null
  durationMs: number | null
  /** The longest that it may be, where `durationMs` is an estimate: of an MP3 that does not count its frames. */
  atMostMs: number | null
  /** Whether pixels may be transparent. False for what has no such thing. */
  alpha: boolean
  /** EXIF's orientation, 1 to 8; 1 when nothing has to be turned. */
  orientation: number
  /** Whether a picture is known to be several, one after the other. */
  animated: boolean
  /** Where in the file the header continues, when that is beyond the bytes that were given: an MP4 with its index at the end, a large tag in front, or a GIF whose first picture is large. */
  continuesAt: number | null
}

/** Bytes of a file, from an offset on. */
export type Piece = { at: number; bytes: Uint8Array }

export const NOTHING: Header = {
  width: null,
  height: null,
  durationMs: null,
  atMostMs: null,
  alpha: false,
  orientation: 1,
  animated: false,
  continuesAt: null,
}

/** The bytes as numbers. */
export const viewOf = (bytes: Uint8Array): DataView => new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
/** Bytes as Latin-1 text, such as the type of a chunk. */
export const textAt = (bytes: Uint8Array, at: number, length: number): string => String.fromCharCode(...bytes.subarray(at, at + length))
