/**
 * Takes the seams out of a filled hole: its colours are shifted so that they meet those around it, and those of its own patches each other,
 * while the differences between neighbouring pixels stay those of the sources (Pérez, Gangnet, Blake: Poisson Image Editing, 2003). Where a
 * shift would have to be large there is an edge, and it stays.
 */
import { RADIUS, type Matches, type Picture } from './patch-match.ts'

/** Differences of 255 that are rather an edge than a seam. */
const EDGE = 10
const CYCLES = 5

/**
 * Equations of a grid: every unknown is bound to its right and lower neighbour by a weight, and to zero by what surrounds the hole; `sum`
 * has all its weights.
 */
type Grid = { width: number; height: number; right: Float32Array; down: Float32Array; sum: Float32Array; unknowns: Int32Array }

/** Changes the pixels of the hole in place. */
export function removeSeams(picture: Picture, matches: Matches): void {
  const { pixels, hole } = picture
  const { grid, sides } = equationsOf(picture, matches)
  const grids = [grid]
  for (let last = grid; Math.max(last.width, last.height) > 2; grids.push(last)) last = coarser(last)
  for (const [c, side] of sides.entries()) {
    const shift = new Float32Array(hole.length)
    for (let cycle = 0; cycle < CYCLES; cycle++) solve(grids, 0, shift, side)
    for (const i of grid.unknowns)
      pixels[4 * i + c] = Math.min(Math.max(Math.round((pixels[4 * i + c] as number) + (shift[i] as number)), 0), 255)
  }
}

/** The equations for the shifts, with a right-hand side for each of red, green, and blue. */
function equationsOf(picture: Picture, matches: Matches): { grid: Grid; sides: [Float32Array, Float32Array, Float32Array] } {
  const { width, height, hole } = picture
  const wanted = shifts(picture, matches)
  const plane = (): Float32Array => new Float32Array(hole.length)
  const [right, down, sum] = [plane(), plane(), plane()]
  const sides: [Float32Array, Float32Array, Float32Array] = [plane(), plane(), plane()]

  function bind(i: number, step: number, weights: Float32Array): void {
    const shift = wanted(i, step)
    const most = shift.reduce((most, value) => Math.max(most, Math.abs(value)), 0)
    const weight = 1 / (1 + (most / EDGE) ** 2)
    if (hole[i] && hole[i + step]) weights[i] = weight
    for (const [end, sign] of [
      [i, -1],
      [i + step, 1],
    ] as const) {
      if (!hole[end]) continue
      for (const [c, side] of sides.entries()) side[end] = (side[end] as number) + sign * weight * (shift[c] as number)
      sum[end] = (sum[end] as number) + weight
    }
  }

  for (let y = 0, i = 0; y < height; y++) {
    for (let x = 0; x < width; x++, i++) {
      if (x + 1 < width && (hole[i] || hole[i + 1])) bind(i, 1, right)
      if (y + 1 < height && (hole[i] || hole[i + width])) bind(i, width, down)
    }
  }
  return { grid: { width, height, right, down, sum, unknowns: unknownsOf(sum) }, sides }
}

function unknownsOf(sum: Float32Array): Int32Array {
  const found = new Int32Array(sum.length)
  let count = 0
  for (let i = 0; i < sum.length; i++) if ((sum[i] as number) > 1e-6) found[count++] = i
  return found.slice(0, count)
}

/** By how much more the shift of the neighbour `step` further has to be than that of a pixel, in each channel. */
function shifts({ width, height, pixels, hole }: Picture, { sources }: Matches): (i: number, step: number) => Float32Array {
  const sourceOf = (i: number): number => {
    const [x, y] = [i % width, Math.floor(i / width)]
    const centre = Math.min(Math.max(y, RADIUS), height - 1 - RADIUS) * width + Math.min(Math.max(x, RADIUS), width - 1 - RADIUS)
    return (sources[centre] as number) + i - centre
  }
  const wanted = new Float32Array(3)
  return (i, step) => {
    wanted.fill(0)
    const share = hole[i] && hole[i + step] ? 0.5 : 1
    for (const [end, ahead] of [
      [i, 0],
      [i + step, step],
    ] as const) {
      if (!hole[end]) continue
      const from = sourceOf(end) - ahead
      for (let c = 0; c < 3; c++) {
        const there = (pixels[4 * (from + step) + c] as number) - (pixels[4 * from + c] as number)
        const here = (pixels[4 * (i + step) + c] as number) - (pixels[4 * i + c] as number)
        wanted[c] = (wanted[c] as number) + share * (there - here)
      }
    }
    return wanted
  }
}

/** The equations of cells of two by two unknowns. */
function coarser({ width, height, right, down, sum, unknowns }: Grid): Grid {
  const size = { width: (width + 1) >> 1, height: (height + 1) >> 1 }
  const plane = (): Float32Array => new Float32Array(size.width * size.height)
  const cells = { right: plane(), down: plane(), sum: plane() }
  const add = (values: Float32Array, cell: number, value: number): void => {
    values[cell] = (values[cell] as number) + value
  }
  for (const i of unknowns) {
    const [x, y] = [i % width, Math.floor(i / width)]
    const cell = (y >> 1) * size.width + (x >> 1)
    // What binds two unknowns of one cell binds the cell to nothing.
    const [inner, outer] = [(x & 1 ? 0 : (right[i] as number)) + (y & 1 ? 0 : (down[i] as number)), sum[i] as number]
    add(cells.sum, cell, outer - 2 * inner)
    if (x & 1) add(cells.right, cell, right[i] as number)
    if (y & 1) add(cells.down, cell, down[i] as number)
  }
  return { ...size, ...cells, unknowns: unknownsOf(cells.sum) }
}

/** One V-cycle of multigrid: brings `values` nearer to the solution for `sides`. */
function solve(grids: readonly Grid[], level: number, values: Float32Array, sides: Float32Array): void {
  const grid = grids[level] as Grid
  const next = grids[level + 1]
  smooth(grid, values, sides)
  if (!next) return
  const { width, sum, unknowns } = grid
  const cellOf = (i: number): number => (Math.floor(i / width) >> 1) * next.width + ((i % width) >> 1)
  const rest = new Float32Array(next.sum.length)
  for (const i of unknowns)
    rest[cellOf(i)] =
      (rest[cellOf(i)] as number) + (sides[i] as number) + neighbours(grid, values, i) - (sum[i] as number) * (values[i] as number)
  const correction = new Float32Array(rest.length)
  solve(grids, level + 1, correction, rest)
  const step = bestStep(next, correction, rest)
  for (const i of unknowns) values[i] = (values[i] as number) + step * (correction[cellOf(i)] as number)
  smooth(grid, values, sides)
}

/** A coarser grid is stiffer than what it stands for. This is how often its correction has to be applied to come nearest to the solution. */
function bestStep(grid: Grid, correction: Float32Array, sides: Float32Array): number {
  let [gain, cost] = [0, 0]
  for (const i of grid.unknowns) {
    const value = correction[i] as number
    gain += value * (sides[i] as number)
    cost += value * ((grid.sum[i] as number) * value - neighbours(grid, correction, i))
  }
  return cost > 0 ? gain / cost : 0
}

/** Gauss-Seidel, once in each direction. */
function smooth(grid: Grid, values: Float32Array, sides: Float32Array): void {
  const { sum, unknowns } = grid
  const relax = (i: number): void => {
    values[i] = ((sides[i] as number) + neighbours(grid, values, i)) / (sum[i] as number)
  }
  for (const i of unknowns) relax(i)
  for (let n = unknowns.length - 1; n >= 0; n--) relax(unknowns[n] as number)
}

/** Weights are 0 beyond the hole, so that the neighbours of another row do not count. */
function neighbours({ width, right, down }: Grid, values: Float32Array, i: number): number {
  let sum = (right[i] as number) * (values[i + 1] ?? 0) + (down[i] as number) * (values[i + width] ?? 0)
  if (i > 0) sum += (right[i - 1] as number) * (values[i - 1] as number)
  if (i >= width) sum += (down[i - width] as number) * (values[i - width] as number)
  return sum
}
