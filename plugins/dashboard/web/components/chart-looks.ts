/** Colours and patterns of the series of a chart: each of the nine is told from the others without its colour as well. */
const SIDE = 8
type Draw = (context: CanvasRenderingContext2D) => void

const line =
  (...points: [x: number, y: number, toX: number, toY: number][]): Draw =>
  (context) => {
    for (const [x, y, toX, toY] of points) {
      context.moveTo(x, y)
      context.lineTo(toX, toY)
    }
    context.stroke()
  }
const dots =
  (radius: number): Draw =>
  (context) => {
    context.arc(SIDE / 2, SIDE / 2, radius, 0, 2 * Math.PI)
    context.fill()
  }
const RISING = line([-2, 10, 10, -2], [-2, 2, 2, -2], [6, 10, 10, 6])
const FALLING = line([-2, -2, 10, 10], [6, -2, 10, 2], [-2, 6, 2, 10])
const ACROSS = line([0, 4, 8, 4])
const DOWN = line([4, 0, 4, 8])

/** By look; the first is plain. */
const PATTERNS: Draw[][] = [[], [RISING], [dots(1.4)], [FALLING], [ACROSS], [DOWN], [RISING, FALLING], [ACROSS, DOWN], [dots(2.6)]]

/** The colour that a custom property has in the present theme. */
export function resolve(host: HTMLElement, property: string): string {
  const probe = document.createElement('span')
  probe.style.color = `var(${property})`
  host.append(probe)
  const { color } = getComputedStyle(probe)
  probe.remove()
  return color
}

/** One tile of a look. */
export function tileOf(host: HTMLElement, look: number): HTMLCanvasElement {
  const at = look % PATTERNS.length
  const tile = document.createElement('canvas')
  tile.width = tile.height = SIDE
  const context = tile.getContext('2d')
  if (!context) return tile
  context.fillStyle = resolve(host, `--chart-${at + 1}`)
  context.fillRect(0, 0, SIDE, SIDE)
  context.fillStyle = context.strokeStyle = resolve(host, '--surface')
  context.lineWidth = 1.4
  for (const draw of PATTERNS[at] ?? []) {
    context.beginPath()
    draw(context)
  }
  return tile
}

/** What bars are filled with. */
export function fillOf(host: HTMLElement, look: number): CanvasPattern | string {
  return tileOf(host, look).getContext('2d')?.createPattern(tileOf(host, look), 'repeat') ?? resolve(host, '--chart-1')
}
