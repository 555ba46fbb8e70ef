/** `merge` of the local engine. Every result is decoded again: frames, audio, colours and length. */
import { join } from 'node:path'
import { writeFile } from 'node:fs/promises'
import t from 'tap'
import type { FormatName } from '../../../src/backends/engines/local/ffmpeg/formats.ts'
import { alike, allColoursAt, allNumbersOf, allTonesOf, codecsOf, colour, coloursAt, counted, LIMITS, madeOf, numbersOf, streamsOf, studio, tones, tonesOf, withoutFfmpeg, X264 } from './ffmpeg-media.ts'

const [RED, LIME, BLUE, BLACK] = [[255, 0, 0], [0, 255, 0], [0, 0, 255], [0, 0, 0]] as const

t.test('merge', { skip: withoutFfmpeg }, async (t) => {
  const { folder, make, makeAll, makeEach, merge } = await studio(t)
  const red = make('red.mp4', ...colour('red'), ...tones(1), ...X264, '-c:a', 'aac')
  const blue = make('blue.avi', ...colour('blue', { size: '40x80', rate: '15', seconds: 2 }), ...tones(2, 0), '-c:v', 'mpeg4', '-q:v', '1', '-c:a', 'libmp3lame', '-ar', '22050', '-ac', '1')
  const [lime = '', song = '', voice = ''] = makeEach([
    ['lime.webm', colour('lime', { size: '160x90', rate: 30 }), ['-c:v', 'libvpx-vp9', '-deadline', 'realtime']],
    ['song.mp3', tones(1), ['-c:a', 'libmp3lame']],
    ['voice.wav', tones(2, 0), ['-ar', '16000', '-ac', '1']],
  ])
  const three = await merge([red, lime, blue])

  t.test('videos of different size, codec and rate are concatenated in order, at the size and rate of the first', async (t) => {
    const made = madeOf(three)
    t.same(made.facts, { width: 64, height: 48, durationMs: made.facts.durationMs })
    t.ok(Math.abs(made.facts.durationMs - 4000) <= 80, `${made.facts.durationMs} ms`)
    t.equal(made.contentType, 'video/mp4')
    t.same(made.used, { Job: 1000, Second: made.facts.durationMs, Megapixel: 4 })
    t.match(streamsOf(made.path), [{ codec_name: 'h264', r_frame_rate: '25/1' }, { codec_name: 'aac', sample_rate: '48000', channels: 2 }])
    const middle = coloursAt(made.path, 0.5, 0.5)
    t.ok(middle.length >= 100 && middle.length <= 102, `${middle.length} frames`)
    for (const [n, expected] of [[0, RED], [24, RED], [25, LIME], [49, LIME], [50, BLUE], [99, BLUE]] as const) t.ok(alike(middle[n], [...expected]), `frame ${n}`)
  })

  t.test('every frame appears once, at the cuts too', async (t) => {
    const [one, other] = [make('one.mp4', ...counted(30), ...X264), make('other.mkv', ...counted(20), '-c:v', 'libvpx', '-crf', '4', '-b:v', '5M')]
    t.same(numbersOf(madeOf(await merge([one, other, one])).path), [...Array(30).keys(), ...Array(20).keys(), ...Array(30).keys()])
  })

  t.test('a source without audio is silent for exactly its length', async (t) => {
    const measured = tonesOf(madeOf(three).path)
    const at = (second: number): number => measured[Math.round(second * 100)] ?? -1
    t.same([at(0.5), at(0.95), at(1.05), at(1.5), at(1.95), at(2.1), at(3)].map((tone) => Math.round(tone / 250) * 250), [500, 500, 0, 0, 0, 1000, 1000])
    t.ok(Math.abs(measured.length - 400) <= 12, `${measured.length} hundredths`)
  })

  t.test('videos without any audio make a result without', async (t) => {
    t.same(streamsOf(madeOf(await merge([lime, lime])).path).map((stream) => stream['codec_type']), ['video'])
  })

  t.test('contain adds bars to another aspect ratio; cover fills the frame', async (t) => {
    const [contained, covered] = [madeOf(three).path, madeOf(await merge([red, lime, blue], { fit: 'cover' })).path]
    const [WIDE, TALL] = [35, -5]
    const places = [
      [contained, TALL, 0.05, 0.5, BLACK], [contained, TALL, 0.5, 0.05, BLUE], [contained, TALL, 0.5, 0.5, BLUE], [covered, TALL, 0.05, 0.5, BLUE], [covered, TALL, 0.5, 0.05, BLUE], [covered, TALL, 0.5, 0.5, BLUE],
      [contained, WIDE, 0.5, 0.03, BLACK], [covered, WIDE, 0.5, 0.03, LIME],
    ] as const
    for (const [n, colours] of allColoursAt(places.map(([path, , x, y]) => [path, x, y])).entries()) {
      const [, frame, , , colour] = places[n]!
      t.ok(alike(colours.at(frame), [...colour]), `place ${n}: ${colours.at(frame)}`)
    }
  })

  t.test('extreme aspect ratios are merged', async (t) => {
    const [tall, dot] = makeEach([['tall.mp4', colour('blue', { size: '2x2000' }), X264], ['dot.mp4', colour('lime', { size: '1x1' }), ['-pix_fmt', 'yuv444p', '-c:v', 'libx264']]]) as [string, string]
    t.match(madeOf(await merge([red, tall])).facts, { width: 64, height: 48 })
    t.match(madeOf(await merge([tall, dot], { fit: 'cover' })).facts, { width: 2, height: 2000 })
    t.match(madeOf(await merge([dot, red])).facts, { width: 2, height: 2 })
  })

  t.test('a stored rotation is applied before fitting', async (t) => {
    const halves = make('halves.mp4', ...colour('red', { size: '32x48' }), ...colour('blue', { size: '32x48' }), '-filter_complex', 'hstack', ...X264)
    const turned = make('turned.mp4', '-i', halves, '-c', 'copy', '-metadata:s:v', 'rotate=90')
    t.match(madeOf(await merge([turned, red])).facts, { width: 48, height: 64 })
    const made = madeOf(await merge([red, turned], { fit: 'cover' }))
    const [top, bottom, above, below] = allColoursAt([made.path, turned].flatMap((path) => [[path, 0.5, 0.1], [path, 0.5, 0.9]] as const)).map((colours) => colours.at(-5)!)
    t.notOk(alike(above, below!))
    t.ok(alike(top, above!) && alike(bottom, below!))
  })

  t.test('colours are preserved across matrices and ranges, in either order', async (t) => {
    const source = colour('0x3070c0')
    const films = makeAll(source, [
      ['plain.mp4', X264],
      ['bt709.mp4', ['-vf', 'scale=out_color_matrix=bt709,format=yuv420p', '-colorspace', 'bt709', ...X264]],
      ['full.webm', ['-vf', 'scale=out_range=pc,format=yuv420p', '-color_range', 'pc', '-c:v', 'libvpx-vp9', '-deadline', 'realtime']],
      ['rgb.mp4', ['-c:v', 'libx264rgb', '-crf', '1']],
    ])
    for (const order of [films, films.toReversed()]) {
      const made = coloursAt(madeOf(await merge(order)).path, 0.5, 0.5)
      for (const n of [12, 37, 62, 87]) t.ok(alike(made[n], [0x30, 0x70, 0xc0]), `frame ${n}: ${made[n]}`)
    }
  })

  t.test('fade overlaps two neighbours by half a second, in video and audio', async (t) => {
    const made = madeOf(await merge([red, blue, red], { transition: 'fade' }))
    t.ok(Math.abs(made.facts.durationMs - 3040) <= 120, `${made.facts.durationMs} ms`)
    const colours = coloursAt(made.path, 0.5, 0.5)
    t.ok(alike(colours[10], [...RED]) && alike(colours[30], [...BLUE]) && alike(colours.at(-5), [...RED]))
    const [r = 0, , b = 0] = colours[18] ?? []
    t.ok(r > 70 && r < 190 && b > 70 && b < 190, `${colours[18]} in the middle of the fade`)
    const measured = tonesOf(made.path)
    t.same([30, 120, 280].map((at) => Math.round((measured[at] ?? 0) / 250) * 250), [500, 1000, 500])
    t.ok(measured.slice(10, -10).every((tone) => tone > 0), 'no gap in the audio')
  })

  t.test('fade loses and repeats no frame outside the crossfades', async (t) => {
    const film = make('fifty.mp4', ...counted(50), ...X264)
    const numbers = numbersOf(madeOf(await merge([film, film, film], { transition: 'fade' })).path)
    t.equal(numbers.length, 3 * 50 - 2 * 12)
    t.same(numbers.slice(0, 38), [...Array(38).keys()])
    t.same(numbers.slice(50, 76), [...Array(26).keys()].map((n) => n + 12))
    t.same(numbers.slice(-38), [...Array(38).keys()].map((n) => n + 12))
  })

  t.test('fade takes at most half of a short source on each side, and nothing of a single frame', async (t) => {
    const [frame, ten] = makeEach([['frame.mp4', counted(1), X264], ['ten.mp4', counted(10), X264]]) as [string, string]
    const made: string[] = []
    for (const sources of [[red, ten, red], [red, frame, red], [frame, frame]]) made.push(madeOf(await merge(sources, { transition: 'fade' })).path)
    t.same(allNumbersOf(made).map(({ length }) => length), [25 - 5 + 10 - 5 + 25, 51, 2])
  })

  t.test('audio files are concatenated without gaps, or crossfaded', async (t) => {
    for (const [transition, seconds] of [['none', 3], ['fade', 2.5]] as const) {
      const made = madeOf(await merge([song, voice], { transition }))
      t.match(made, { contentType: 'audio/mp4', facts: { width: null, height: null }, used: { Megapixel: 0 } })
      t.ok(Math.abs(made.facts.durationMs - seconds * 1000) <= 60, `${made.facts.durationMs} ms`)
      const measured = tonesOf(made.path)
      t.ok(measured.slice(5, seconds * 100 - 5).every((tone) => tone > 0), `${transition}: no gap`)
      t.same([20, 200].map((at) => Math.round((measured[at] ?? 0) / 250) * 250), [500, 1000])
    }
  })

  t.test('videos are merged into formats of films and of sound', async (t) => {
    const formats: [FormatName, string][] = [['webm', 'video/webm'], ['wav', 'audio/wav']]
    const made: string[] = []
    for (const [format, type] of formats) {
      const { contentType, facts, path } = madeOf(await merge([red, lime, blue], { format }))
      t.equal(contentType, type)
      t.ok(Math.abs(facts.durationMs - 4000) <= 120, `${format}: ${facts.durationMs} ms`)
      t.equal(facts.width, format === 'webm' ? 64 : null)
      made.push(path)
    }
    for (const [n, tones] of allTonesOf(made).entries()) t.same([50, 150, 300].map((at) => Math.round((tones[at] ?? -1) / 250) * 250), [500, 0, 1000], String(formats[n]))
  })

  t.test('a lossless format keeps the sampling rate and the bits of the first sound', async (t) => {
    const studio = make('studio.wav', '-f', 'lavfi', '-i', 'anoisesrc=r=96000:d=1:seed=1', '-ac', '2', '-c:a', 'pcm_s24le')
    const made: string[] = []
    for (const format of ['wav', 'flac'] as const) {
      const { facts, path } = madeOf(await merge([studio, voice], { format }))
      t.ok(Math.abs(facts.durationMs - 3000) <= 60, `${format}: ${facts.durationMs} ms`)
      made.push(path)
    }
    t.same(codecsOf(made), [{ codecs: ['pcm_s24le'], rates: [96_000] }, { codecs: ['flac'], rates: [96_000] }])
  })

  t.test('twenty sources are merged with crossfades', async (t) => {
    const made = madeOf(await merge(Array.from({ length: 20 }, (_, n) => [red, lime, blue][n % 3]!), { transition: 'fade' }))
    const expected = 7 * 1000 + 7 * 1000 + 6 * 2000 - 19 * 480
    t.ok(Math.abs(made.facts.durationMs - expected) <= 600, `${made.facts.durationMs} ms, not ${expected}`)
  })

  t.test('videos mixed with audio files are mixed_sources, unless the format is an audio format', async (t) => {
    t.match(await merge([red, song]), { outcome: 'failed', code: 'mixed_sources', retryable: false })
    t.match(await merge([song, red]), { outcome: 'failed', code: 'mixed_sources', retryable: false })
    t.ok(Math.abs(madeOf(await merge([song, red], { format: 'mp3' })).facts.durationMs - 2000) <= 120)
  })

  t.test('an audio format of videos without audio is no_sound', async (t) => {
    t.match(await merge([lime, lime], { format: 'wav' }), { outcome: 'failed', code: 'no_sound', retryable: false })
  })

  t.test('one unreadable source among good ones is unsupported_input', async (t) => {
    const broken = join(folder, 'broken.mp4')
    await writeFile(broken, `#EXTM3U\n#EXTINF:10,\nfile://${red}\n`)
    for (const inputs of [[broken, red], [red, broken]]) t.match(await merge(inputs), { outcome: 'failed', code: 'unsupported_input', retryable: false })
  })

  t.test('input_too_large: one source; result_too_large: all together', async (t) => {
    t.match(await merge([red, blue], {}, { limits: { ...LIMITS, pixels: 64 * 48 } }), { outcome: 'failed', code: 'input_too_large', retryable: false, input: 1, details: { found: { width: Number, height: Number }, limit: { megapixels: 0.003072 } } })
    t.match(await merge([red, blue], {}, { limits: { ...LIMITS, durationMs: 2500 } }), { outcome: 'failed', code: 'result_too_large', retryable: false, details: { found: { seconds: Number }, limit: { seconds: 2.5 } } })
    t.equal((await merge([red, blue], { transition: 'fade' }, { limits: { ...LIMITS, durationMs: 2700 } })).outcome, 'made')
  })

  t.test('progress rises over the length of the result, and tags of the sources are removed', async (t) => {
    const reported: number[] = []
    const long = make('long.mp4', '-f', 'lavfi', '-i', 'testsrc2=s=640x360:r=25:d=7', ...X264, '-preset', 'ultrafast', '-metadata', 'title=private')
    const made = madeOf(await merge([long, long], { transition: 'fade' }, { progress: (percent) => reported.push(percent) }))
    t.ok(reported.some((percent) => percent > 0 && percent < 99) && reported.every((percent, n) => percent <= 99 && percent >= (reported[n - 1] ?? 0)), reported.join())
    t.notOk(JSON.stringify(streamsOf(made.path)).includes('private'))
  })
})
