/** Pictures as encoders see them: planes of samples. */
export type Plane = { width: number; height: number; samples: Uint8Array }

/** A picture in 4:2:0, BT.709, limited range. The planes are whole macroblocks: luma a multiple of 16 wide and high, chroma half of that. */
export type Picture = { luma: Plane; cb: Plane; cr: Plane }

function plane(width: number, height: number): Plane {
  return { width, height, samples: new Uint8Array(width * height) }
}

/** The empty picture that holds a video of that size. */
export function pictureFor(width: number, height: number): Picture {
  const wide = Math.ceil(width / 16) * 16
  const high = Math.ceil(height / 16) * 16
  return { luma: plane(wide, high), cb: plane(wide / 2, high / 2), cr: plane(wide / 2, high / 2) }
}
