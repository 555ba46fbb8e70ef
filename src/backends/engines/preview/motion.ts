/** Movement of previews. */
import type { Canvas } from './canvas.ts'

/** Paints at a time in turns: everything that turns has turned once at 1. */
export type Painter = (canvas: Canvas, turns: number) => void

/** A sine, by turns rather than radians. */
export function wave(turns: number): number {
  return Math.sin(2 * Math.PI * turns)
}
