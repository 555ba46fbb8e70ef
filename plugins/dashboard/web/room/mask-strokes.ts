/** Strokes of a brush on a canvas, and the mask that they make: white where the edit is, black elsewhere. */
export type Point = { x: number; y: number }
export type Stroke = { isErasing: boolean; radius: number; points: Point[] }
type Size = { width: number; height: number }

const MARK = '#ff3d71'

/** Lengthens a stroke. Points that nobody can tell from the one before are left out: a mouse sends a thousand a second. */
export function addPoint({ radius, points }: Stroke, { x, y }: Point): void {
  const last = points.at(-1)
  if (!last || Math.hypot(x - last.x, y - last.y) >= radius / 4) points.push({ x, y })
}

/** Shows strokes over the picture. The canvas is translucent by its style. */
export function drawStrokes(context: CanvasRenderingContext2D, { width, height }: Size, strokes: readonly Stroke[], colour = MARK): void {
  context.clearRect(0, 0, width, height)
  context.lineCap = 'round'
  context.lineJoin = 'round'
  for (const { isErasing, radius, points } of strokes) {
    context.globalCompositeOperation = isErasing ? 'destination-out' : 'source-over'
    context.strokeStyle = colour
    context.fillStyle = colour
    context.lineWidth = radius * 2
    const [first, ...others] = points
    if (!first) continue
    // A line of no length draws nothing, even with round ends.
    context.beginPath()
    context.arc(first.x, first.y, radius, 0, 2 * Math.PI)
    context.fill()
    context.beginPath()
    context.moveTo(first.x, first.y)
    for (const { x, y } of others) context.lineTo(x, y)
    context.stroke()
  }
  context.globalCompositeOperation = 'source-over'
}

/** The mask as a data: URL of a PNG without transparency. */
export function maskUrl({ width, height }: Size, strokes: readonly Stroke[]): string | null {
  const canvas = document.createElement('canvas')
  Object.assign(canvas, { width, height })
  const context = canvas.getContext('2d')
  if (!context) return null
  drawStrokes(context, { width, height }, strokes, '#ffffff')
  context.globalCompositeOperation = 'destination-over'
  context.fillStyle = '#000000'
  context.fillRect(0, 0, width, height)
  const url = canvas.toDataURL('image/png')
  // Frees the pixels at once instead of with the next collection.
  Object.assign(canvas, { width: 0, height: 0 })
  return url
}
