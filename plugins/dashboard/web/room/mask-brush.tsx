/** Marks a part of a picture with a brush: by pointer, or by keyboard with a cursor that paints. */
import { useEffect, useRef, useState } from 'preact/hooks'
import { Button } from '../components/button.tsx'
import { Segmented } from '../components/field.tsx'
import type { Source } from './media-api.ts'
import { addPoint, drawStrokes, maskUrl, type Point, type Stroke } from './mask-strokes.ts'
import type { Edit } from './operation-body.ts'

const TOOLS = [
  { value: 'mark', name: 'Mark' },
  { value: 'erase', name: 'Erase' },
]
/** Longest side of the mask in pixels; the service scales it to the picture. */
const MASK_SIDE = 1024
const KEY_STEP = 0.02

type BrushProps = Pick<Edit, 'strokes'> & { source: Source; set: (change: Pick<Edit, 'strokes'> | Pick<Edit, 'mask'>) => void }

export function MaskBrush({ source, strokes, set }: BrushProps) {
  const { width, height } = maskSize(source)
  const canvas = useRef<HTMLCanvasElement>(null)
  const [tool, setTool] = useState('mark')
  const [size, setSize] = useState(12)
  const [cursor, setCursor] = useState<Point>({ x: width / 2, y: height / 2 })
  const [hasFocus, setFocus] = useState(false)
  const drawing = useRef<Stroke | null>(null)
  const radius = (Math.max(width, height) * size) / 200

  const paint = (shown: Stroke[]) => {
    const context = canvas.current?.getContext('2d')
    if (context) drawStrokes(context, { width, height }, shown)
  }
  useEffect(() => {
    paint(strokes)
    set({ mask: strokes.some(({ isErasing }) => !isErasing) ? maskUrl({ width, height }, strokes) : null })
  }, [strokes])

  const strokeAt = (point: Point): Stroke => ({ isErasing: tool === 'erase', radius, points: [point] })
  const pointOf = (event: PointerEvent): Point => {
    const box = canvas.current?.getBoundingClientRect()
    const share = (at: number, from: number, length: number, pixels: number) => Math.round(((at - from) / length) * pixels)
    return box
      ? { x: share(event.clientX, box.left, box.width, width), y: share(event.clientY, box.top, box.height, height) }
      : { x: 0, y: 0 }
  }
  function begin(event: PointerEvent): void {
    if (event.button !== 0) return
    event.preventDefault()
    canvas.current?.setPointerCapture(event.pointerId)
    drawing.current = strokeAt(pointOf(event))
    paint([...strokes, drawing.current])
  }
  function draw(event: PointerEvent): void {
    if (!drawing.current) return
    for (const each of event.getCoalescedEvents?.() ?? [event]) addPoint(drawing.current, pointOf(each))
    paint([...strokes, drawing.current])
  }
  function finish(): void {
    const { current } = drawing
    drawing.current = null
    if (current) set({ strokes: [...strokes, current] })
  }
  const undo = () => set({ strokes: strokes.slice(0, -1) })

  function press(event: KeyboardEvent): void {
    const key = event.key.toLowerCase()
    const isCommand = event.ctrlKey || event.metaKey || event.altKey
    const isUndo = key === 'z' && isCommand && !event.altKey && !event.shiftKey
    // The other commands are the browser's.
    if (isCommand && !isUndo) return
    const step = Math.max(width, height) * KEY_STEP * (event.shiftKey ? 4 : 1)
    const by = { ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, -step], ArrowDown: [0, step] }[event.key]
    if (by) setCursor({ x: clamp(cursor.x + (by[0] ?? 0), width), y: clamp(cursor.y + (by[1] ?? 0), height) })
    else if (event.key === ' ' || event.key === 'Enter') set({ strokes: [...strokes, strokeAt(cursor)] })
    else if (key === 'e') setTool(tool === 'erase' ? 'mark' : 'erase')
    else if (event.key === '+' || event.key === '-') setSize(Math.min(50, Math.max(2, size + (event.key === '+' ? 2 : -2))))
    else if (isUndo) undo()
    else return
    event.preventDefault()
  }

  return (
    <div class="field mask">
      <span class="field-label" id="mask-label">
        Mark what to replace
      </span>
      <div
        class={source.isTransparent ? 'mask-frame checkered' : 'mask-frame'}
        style={{ aspectRatio: `${width} / ${height}`, maxWidth: `${(width / height) * 38}vh` }}
      >
        <img src={source.url} alt="" draggable={false} />
        <canvas
          ref={canvas}
          width={width}
          height={height}
          tabIndex={0}
          role="application"
          aria-label="Picture to mark"
          aria-roledescription="brush area"
          aria-describedby="mask-help"
          onPointerDown={begin}
          onPointerMove={draw}
          onPointerUp={finish}
          onPointerCancel={finish}
          onKeyDown={press}
          onFocus={() => setFocus(true)}
          onBlur={() => setFocus(false)}
        />
        {hasFocus && <Cursor at={cursor} radius={radius} mask={{ width, height }} />}
      </div>
      <p id="mask-help" class="hint">
        Paint over it. By keyboard: arrows move, Space marks, E erases, + and − change the size, Ctrl+Z undoes.
      </p>
      <BrushTools {...{ tool, setTool, size, setSize, undo }} strokes={strokes.length} clear={() => set({ strokes: [] })} />
      <p class="visually-hidden" role="status">
        {strokes.length} strokes
      </p>
    </div>
  )
}

type Size = { width: number; height: number }

function Cursor({ at, radius, mask }: { at: Point; radius: number; mask: Size }) {
  const percent = (part: number, whole: number) => `${(part / whole) * 100}%`
  const style = { left: percent(at.x, mask.width), top: percent(at.y, mask.height), width: percent(radius * 2, mask.width) }
  return <span class="mask-cursor" aria-hidden="true" style={style} />
}

type ToolsProps = {
  tool: string
  setTool: (tool: string) => void
  size: number
  setSize: (size: number) => void
  strokes: number
  undo: () => void
  clear: () => void
}

function BrushTools({ tool, setTool, size, setSize, strokes, undo, clear }: ToolsProps) {
  return (
    <div class="row">
      <Segmented label="Brush" value={tool} choices={TOOLS} choose={setTool} />
      <label class="brush-size">
        Size <input type="range" min={2} max={50} step={1} value={size} onInput={(event) => setSize(Number(event.currentTarget.value))} />
      </label>
      <Button text="Undo" icon="back" look="small" disabled={strokes === 0} onClick={undo} />
      <Button text="Clear" look="small quiet" disabled={strokes === 0} onClick={clear} />
    </div>
  )
}

const clamp = (value: number, most: number): number => Math.min(most, Math.max(0, value))

/** The size of the mask: the picture's, scaled down to `MASK_SIDE`. */
function maskSize({ width, height }: Source): Size {
  const [across, down] = [width ?? MASK_SIDE, height ?? MASK_SIDE]
  const scale = Math.min(1, MASK_SIDE / Math.max(across, down))
  return { width: Math.max(1, Math.round(across * scale)), height: Math.max(1, Math.round(down * scale)) }
}
