/** `merge` of the local engine: every result is decoded again and looked at. Inputs are made by ffmpeg here. */
import { join } from 'node:path'
import { writeFile } from 'node:fs/promises'
import t from 'tap'
import type { FormatName } from '../../../src/backends/engines/local/formats.ts'
import { alike, colour, coloursAt, counted, LIMITS, madeOf, numbersOf, streamsOf, studio, tones, tonesOf, withoutFfmpeg, X264 } from './film-maker.ts'

const [RED, LIME, BLUE, BLACK] = [[255, 0, 0], [0, 255, 0], [0, 0, 255], [0, 0, 0]] as const

t.test('merge', { skip: withoutFfmpeg }, async (t) => {
  const { folder, make, merge } = await studio(t)
  const red = make('red.mp4', ...colour('red'), ...tones(1), ...X264, '-c:a', 'aac')
  const lime = make('lime.webm', ...colour('lime', { size: '160x90', rate: 30 }), '-c:v', 'libvpx-vp9', '-deadline', 'realtime')
  const blue = make('blue.avi', ...colour('blue', { size: '40x80', rate: '15', seconds: 2 }), ...tones(2, 0), '-c:v', 'mpeg4', '-q:v', '1', '-c:a', 'libmp3lame', '-ar', '22050', '-ac', '1')
  const song = make('song.mp3', ...tones(1), '-c:a', 'libmp3lame')
  const voice = make('voice.wav', ...tones(2, 0), '-ar', '16000', '-ac', '1')

  t.test('films of different size, codec and rate follow each other in order, at the size and rate of the first', async (t) => {
    const made = madeOf(await merge([red, lime, blue]))
    t.same(made.facts, { width: 64, height: 48, durationMs: made.facts.durationMs })
    t.ok(Math.abs(made.facts.durationMs - 4000) <= 80, `${made.facts.durationMs} ms`)
    t.equal(made.contentType, 'video/mp4')
    t.same(made.used, { Job: 1000, Second: made.facts.durationMs, Megapixel: 4 })
    t.match(streamsOf(made.path), [{ codec_name: 'h264', r_frame_rate: '25/1' }, { codec_name: 'aac', sample_rate: '48000', channels: 2 }])
    const middle = coloursAt(made.path, 0.5, 0.5)
    t.ok(middle.length >= 100 && middle.length <= 102, `${middle.length} frames`)
    for (const [n, expected] of [[0, RED], [24, RED], [25, LIME], [49, LIME], [50, BLUE], [99, BLUE]] as const) t.ok(alike(middle[n], [...expected]), `frame ${n}`)
  })

  t.test('each frame is there, once, and none is lost at a joint', async (t) => {
    const [one, other] = [make('one.mp4', ...counted(30), ...X264), make('other.mkv', ...counted(20), '-c:v', 'libvpx', '-crf', '4', '-b:v', '5M')]
    t.same(numbersOf(madeOf(await merge([one, other, one])).path), [...Array(30).keys(), ...Array(20).keys(), ...Array(30).keys()])
  })

  t.test('an input without sound is silent, for exactly its length', async (t) => {
    const heard = tonesOf(madeOf(await merge([red, lime, blue])).path)
    const at = (second: number): number => heard[Math.round(second * 100)] ?? -1
    t.same([at(0.5), at(0.95), at(1.05), at(1.5), at(1.95), at(2.1), at(3)].map((tone) => Math.round(tone / 250) * 250), [500, 500, 0, 0, 0, 1000, 1000])
    t.ok(Math.abs(heard.length - 400) <= 12, `${heard.length} hundredths`)
  })

  t.test('films without any sound stay without', async (t) => {
    t.same(streamsOf(madeOf(await merge([lime, lime])).path).map((stream) => stream['codec_type']), ['video'])
  })

  t.test('contain: another shape has bars beside it; cover: it fills the frame', async (t) => {
    for (const [fit, side, top] of [['contain', BLACK, BLUE], ['cover', BLUE, BLUE]] as const) {
      const made = madeOf(await merge([red, blue], { fit }))
      t.ok(alike(coloursAt(made.path, 0.05, 0.5).at(-5), [...side]), `${fit}, at the side`)
      t.ok(alike(coloursAt(made.path, 0.5, 0.05).at(-5), [...top]), `${fit}, at the top`)
      t.ok(alike(coloursAt(made.path, 0.5, 0.5).at(-5), [...BLUE]))
    }
    for (const [fit, top] of [['contain', BLACK], ['cover', LIME]] as const) {
      const made = madeOf(await merge([red, lime], { fit }))
      t.ok(alike(coloursAt(made.path, 0.5, 0.03).at(-5), [...top]), `${fit}, a wider one`)
    }
  })

  t.test('shapes that could not differ more are merged as well', async (t) => {
    const [tall, dot] = [make('tall.mp4', ...colour('blue', { size: '2x2000' }), ...X264), make('dot.mp4', ...colour('lime', { size: '1x1' }), '-pix_fmt', 'yuv444p', '-c:v', 'libx264')]
    for (const fit of ['contain', 'cover'] as const) {
      t.match(madeOf(await merge([red, tall, dot], { fit })).facts, { width: 64, height: 48 })
      t.match(madeOf(await merge([tall, red, dot], { fit })).facts, { width: 2, height: 2000 })
      t.match(madeOf(await merge([dot, tall, red], { fit })).facts, { width: 2, height: 2 })
    }
  })

  t.test('a film that players turn is turned before it is fitted', async (t) => {
    const halves = make('halves.mp4', ...colour('red', { size: '32x48' }), ...colour('blue', { size: '32x48' }), '-filter_complex', 'hstack', ...X264)
    const turned = make('turned.mp4', '-i', halves, '-c', 'copy', '-metadata:s:v', 'rotate=90')
    t.match(madeOf(await merge([turned, red])).facts, { width: 48, height: 64 })
    const made = madeOf(await merge([red, turned], { fit: 'cover' }))
    const [top, bottom] = [coloursAt(made.path, 0.5, 0.1).at(-5), coloursAt(made.path, 0.5, 0.9).at(-5)]
    const [above, below] = [coloursAt(turned, 0.5, 0.1).at(-5)!, coloursAt(turned, 0.5, 0.9).at(-5)!]
    t.notOk(alike(above, below))
    t.ok(alike(top, above) && alike(bottom, below))
  })

  t.test('colours of other matrices and ranges are brought to those of the first', async (t) => {
    const source = colour('0x3070c0')
    const films = [
      make('plain.mp4', ...source, ...X264),
      make('bt709.mp4', ...source, '-vf', 'scale=out_color_matrix=bt709,format=yuv420p', '-colorspace', 'bt709', ...X264),
      make('full.webm', ...source, '-vf', 'scale=out_range=pc,format=yuv420p', '-color_range', 'pc', '-c:v', 'libvpx-vp9', '-deadline', 'realtime'),
      make('rgb.mp4', ...source, '-c:v', 'libx264rgb', '-crf', '1'),
    ]
    for (const order of [films, films.toReversed()]) {
      const made = coloursAt(madeOf(await merge(order)).path, 0.5, 0.5)
      for (const n of [12, 37, 62, 87]) t.ok(alike(made[n], [0x30, 0x70, 0xc0]), `frame ${n}: ${made[n]}`)
    }
  })

  t.test('fade: two neighbours overlap for half a second, in picture and sound', async (t) => {
    const made = madeOf(await merge([red, blue, red], { transition: 'fade' }))
    t.ok(Math.abs(made.facts.durationMs - 3040) <= 120, `${made.facts.durationMs} ms`)
    const colours = coloursAt(made.path, 0.5, 0.5)
    t.ok(alike(colours[10], [...RED]) && alike(colours[30], [...BLUE]) && alike(colours.at(-5), [...RED]))
    const [r = 0, , b = 0] = colours[18] ?? []
    t.ok(r > 70 && r < 190 && b > 70 && b < 190, `${colours[18]} in the middle of the fade`)
    const heard = tonesOf(made.path)
    t.same([30, 120, 280].map((at) => Math.round((heard[at] ?? 0) / 250) * 250), [500, 1000, 500])
    t.ok(heard.slice(10, -10).every((tone) => tone > 0), 'no hole in the sound')
  })

  t.test('fade: of the frames outside of the fades, none is lost and none is doubled', async (t) => {
    const film = make('fifty.mp4', ...counted(50), ...X264)
    const numbers = numbersOf(madeOf(await merge([film, film, film], { transition: 'fade' })).path)
    t.equal(numbers.length, 3 * 50 - 2 * 12)
    t.same(numbers.slice(0, 38), [...Array(38).keys()])
    t.same(numbers.slice(50, 76), [...Array(26).keys()].map((n) => n + 12))
    t.same(numbers.slice(-38), [...Array(38).keys()].map((n) => n + 12))
  })

  t.test('fade: a short input gives at most half of itself to each neighbour, and a single frame none', async (t) => {
    const [frame, ten] = [make('frame.mp4', ...counted(1), ...X264), make('ten.mp4', ...counted(10), ...X264)]
    t.equal(numbersOf(madeOf(await merge([red, ten, red], { transition: 'fade' })).path).length, 25 - 5 + 10 - 5 + 25)
    t.equal(numbersOf(madeOf(await merge([red, frame, red], { transition: 'fade' })).path).length, 51)
    t.equal(numbersOf(madeOf(await merge([frame, frame], { transition: 'fade' })).path).length, 2)
  })

  t.test('sounds alone follow each other without a gap, or are faded into each other', async (t) => {
    for (const [transition, seconds] of [['none', 3], ['fade', 2.5]] as const) {
      const made = madeOf(await merge([song, voice], { transition }))
      t.match(made, { contentType: 'audio/mp4', facts: { width: null, height: null }, used: { Megapixel: 0 } })
      t.ok(Math.abs(made.facts.durationMs - seconds * 1000) <= 60, `${made.facts.durationMs} ms`)
      const heard = tonesOf(made.path)
      t.ok(heard.slice(5, seconds * 100 - 5).every((tone) => tone > 0), `${transition}: no hole`)
      t.same([20, 200].map((at) => Math.round((heard[at] ?? 0) / 250) * 250), [500, 1000])
    }
  })

  for (const [format, contentType] of [['webm', 'video/webm'], ['m4a', 'audio/mp4'], ['mp3', 'audio/mpeg'], ['wav', 'audio/wav']] as [FormatName, string][]) {
    t.test(`films can be merged into ${format}`, async (t) => {
      const made = madeOf(await merge([red, lime, blue], { format }))
      t.equal(made.contentType, contentType)
      t.ok(Math.abs(made.facts.durationMs - 4000) <= 120, `${made.facts.durationMs} ms`)
      t.equal(made.facts.width, format === 'webm' ? 64 : null)
      t.same([50, 150, 300].map((at) => Math.round((tonesOf(made.path)[at] ?? -1) / 250) * 250), [500, 0, 1000])
    })
  }

  t.test('twenty inputs are merged', async (t) => {
    const films = [red, lime, blue].map((film) => film)
    const twenty = Array.from({ length: 20 }, (_, n) => films[n % 3]!)
    for (const transition of ['none', 'fade'] as const) {
      const made = madeOf(await merge(twenty, { transition }))
      const expected = 7 * 1000 + 7 * 1000 + 6 * 2000 - (transition === 'fade' ? 19 * 480 : 0)
      t.ok(Math.abs(made.facts.durationMs - expected) <= 600, `${made.facts.durationMs} ms, not ${expected}`)
    }
  })

  t.test('films mixed with sounds are unsupported_input, unless only their sound is wanted', async (t) => {
    t.match(await merge([red, song]), { outcome: 'failed', code: 'unsupported_input', retryable: false })
    t.match(await merge([song, red]), { outcome: 'failed', code: 'unsupported_input', retryable: false })
    t.ok(Math.abs(madeOf(await merge([song, red], { format: 'mp3' })).facts.durationMs - 2000) <= 120)
  })

  t.test('a format of sound for films without any is unsupported_input', async (t) => {
    t.match(await merge([lime, lime], { format: 'wav' }), { outcome: 'failed', code: 'unsupported_input' })
  })

  t.test('one broken input among good ones is unsupported_input', async (t) => {
    const broken = join(folder, 'broken.mp4')
    await writeFile(broken, `#EXTM3U\n#EXTINF:10,\nfile://${red}\n`)
    for (const inputs of [[broken, red], [red, broken], [red, red, broken]]) t.match(await merge(inputs), { outcome: 'failed', code: 'unsupported_input', retryable: false })
  })

  t.test('input_too_large: one input, or the result', async (t) => {
    t.match(await merge([red, blue], {}, { limits: { ...LIMITS, pixels: 64 * 48 } }), { outcome: 'failed', code: 'input_too_large', retryable: false })
    t.match(await merge([red, blue], {}, { limits: { ...LIMITS, durationMs: 2500 } }), { outcome: 'failed', code: 'input_too_large', retryable: false })
    t.equal((await merge([red, blue], { transition: 'fade' }, { limits: { ...LIMITS, durationMs: 2700 } })).outcome, 'made')
  })

  t.test('progress rises over the whole length of the result, and no tag of the inputs is kept', async (t) => {
    const heard: number[] = []
    const long = make('long.mp4', '-f', 'lavfi', '-i', 'testsrc2=s=640x360:r=25:d=10', ...X264, '-preset', 'ultrafast', '-metadata', 'title=private')
    const made = madeOf(await merge([long, long], { transition: 'fade' }, { progress: (percent) => heard.push(percent) }))
    t.ok(heard.some((percent) => percent > 0 && percent < 99) && heard.every((percent, n) => percent <= 99 && percent >= (heard[n - 1] ?? 0)), heard.join())
    t.notOk(JSON.stringify(streamsOf(made.path)).includes('private'))
  })
})
