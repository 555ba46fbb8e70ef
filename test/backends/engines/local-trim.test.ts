/** `trim` of the local engine. Every result is decoded again: frames, sound, colours and length. */
import { execFileSync } from 'node:child_process'
import { open, readFile, stat, truncate, writeFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import { join } from 'node:path'
import t from 'tap'
import type { FormatName } from '../../../src/backends/engines/local/ffmpeg/formats.ts'
import { alike, allColoursAt, allNumbersAndTonesOf, allNumbersOf, allTonesOf, codecsOf, colour, coloursAt, counted, frameAt, LIMITS, madeOf, numbersOf, programs, riseOf, samplesOf, streamsOf, studio, tones, tonesOf, withoutFfmpeg, X264 } from './ffmpeg-media.ts'
import { listening } from '../../fakes/listening.ts'

const range = (from: number, to: number): number[] => Array.from({ length: to - from }, (_, n) => from + n)

/** Containers and codecs: a file name, and its encoder's arguments. */
const FILMS: [string, string[]][] = [
  ['bframes-one-key.mp4', ['-c:v', 'libx264', '-g', '999', '-bf', '3', '-crf', '10', '-c:a', 'aac']],
  ['index-at-the-end.mov', ['-c:v', 'mpeg4', '-q:v', '1', '-c:a', 'pcm_s16le']],
  ['fragmented.mp4', [...X264, '-c:a', 'aac', '-movflags', 'frag_keyframe+empty_moov']],
  ['vp9.webm', ['-c:v', 'libvpx-vp9', '-deadline', 'realtime', '-crf', '5', '-b:v', '0', '-c:a', 'libopus']],
  ['no-length-no-index.webm', ['-c:v', 'libvpx', '-crf', '4', '-b:v', '5M', '-c:a', 'libvorbis', '-live', '1']],
  ['mpeg4.avi', ['-c:v', 'mpeg4', '-q:v', '1', '-c:a', 'libmp3lame']],
  ['h264.ts', [...X264, '-c:a', 'aac']],
  ['mpeg2.ts', ['-c:v', 'mpeg2video', '-q:v', '1', '-c:a', 'mp2']],
  ['theora.ogv', ['-c:v', 'libtheora', '-q:v', '10', '-c:a', 'libvorbis', '-f', 'ogg']],
]

t.test('trim', { skip: withoutFfmpeg }, async (t) => {
  const { folder, make, makeAll, makeEach, trim } = await studio(t)
  const [film = '', silent = '', ...films] = makeAll([...counted(75), ...tones(3, 1.5)], [
    ['film.mp4', [...X264, '-c:a', 'aac', '-metadata', 'location=+12.3456-065.4321/', '-metadata', 'title=private', '-shortest']],
    ['silent.mp4', [...X264, '-an']],
    ...FILMS.map(([name, encoded]): [string, string[]] => [name, [...encoded, '-shortest']]),
  ])

  t.test('accurate: the result has exactly the frames and the audio between the two times', async (t) => {
    const made: ReturnType<typeof madeOf>[] = []
    for (const input of films) made.push(madeOf(await trim(input, { startMs: 1200, endMs: 2400 })))
    const found = allNumbersAndTonesOf(made.map(({ path }) => path))
    const sources = allTonesOf(films)
    for (const [n, [name]] of FILMS.entries()) {
      t.same(made[n]?.facts, { width: 64, height: 48, durationMs: 1200 }, name)
      const { numbers = [], tones = [] } = found[n] ?? {}
      const first = frameAt(films[n]!, 1.2)
      t.same(numbers, range(first, first + 30), name)
      t.ok(Math.abs(tones.length - 120) <= 3, `${name}: ${tones.length} hundredths of sound`)
      const rise = riseOf(sources[n]!) - 120
      t.ok(Math.abs(riseOf(tones) - rise) <= 2, `${name}: the tone rises at ${riseOf(tones)}, not at ${rise}`)
    }
  })

  const isPrivate = (bytes: Buffer): boolean => bytes.includes('private') || bytes.includes('065.4321')

  t.test('the default result is MP4 with H.264 and AAC, its index at the front, charged by its own size and length', async (t) => {
    const made = madeOf(await trim(film, { startMs: 500, endMs: 1500 }))
    t.equal(made.contentType, 'video/mp4')
    t.same(made.used, { Job: 1000, Second: 1000, Megapixel: 4 })
    t.match(streamsOf(made.path), [{ codec_name: 'h264', pix_fmt: 'yuv420p', width: 64, height: 48, nb_frames: '25' }, { codec_name: 'aac' }])
    const bytes = await readFile(made.path)
    t.ok(bytes.indexOf('moov') < bytes.indexOf('mdat'))
    t.ok(isPrivate(await readFile(film)) && !isPrivate(bytes), 'titles, places and other tags are removed')
    t.ok((await stat(made.path)).size < LIMITS.bytes)
  })

  t.test('without an end, or with one past the end, the result extends to the end of the source', async (t) => {
    const made: string[] = []
    for (const endMs of [null, 99_000]) made.push(madeOf(await trim(film, { startMs: 2000, endMs })).path)
    t.same(allNumbersOf(made), Array(2).fill(range(50, 75)))
  })

  t.test('a start at or past the end is start_past_end', async (t) => {
    for (const startMs of [3000, 1e9]) t.match(await trim(silent, { startMs }), { outcome: 'failed', code: 'start_past_end', retryable: false, details: { found: { seconds: 3 } } })
  })

  t.test('a section shorter than a frame becomes the nearest frame', async (t) => {
    const made = [await trim(silent, { startMs: 1001, endMs: 1002 }), await trim(silent, { startMs: 2990, endMs: 3000 })]
    t.same(allNumbersOf(made.map((one) => madeOf(one).path)), [[25], [74]])
  })

  t.test('a video without audio stays without', async (t) => {
    const streams = streamsOf(madeOf(await trim(silent, { startMs: 1000, endMs: 2000 })).path)
    t.match(streams, [{ codec_type: 'video', nb_frames: '25' }])
    t.equal(streams.length, 1)
  })

  t.test('audio that begins later than the video, or ends earlier, stays synchronous', async (t) => {
    const late = make('late.mkv', ...counted(75), '-itsoffset', '1', ...tones(1), ...X264, '-c:a', 'flac')
    const measured = tonesOf(madeOf(await trim(late, { startMs: 500, endMs: 2800 })).path)
    t.ok(Math.abs(measured.findIndex((tone) => tone > 0) - 50) <= 2)
    t.ok(Math.abs(measured.findLastIndex((tone) => tone > 0) - 150) <= 2)
  })

  t.test('the last frame is repeated while audio continues', async (t) => {
    const long = make('long-sound.mp4', ...counted(50), ...tones(4, 3), ...X264, '-c:a', 'aac')
    const made = [await trim(long, { startMs: 1800, endMs: 2200 }), await trim(long, { startMs: 2500, endMs: 3500 })]
    const [across, behind] = allNumbersAndTonesOf(made.map((one) => madeOf(one).path))
    t.same(across?.numbers, [45, 46, 47, 48, 49, 49, 49, 49, 49, 49])
    t.same(behind?.numbers, Array(25).fill(49))
    t.ok(Math.abs(riseOf(behind?.tones ?? []) - 50) <= 2)
  })

  t.test('a late start is exact, also with deep frame reordering at a low frame rate', async (t) => {
    const slow = make('slow.mp4', '-f', 'lavfi', '-i', "nullsrc=s=64x48:r=2:d=50,geq=lum='20+2*N':cb=128:cr=128,format=yuv420p", '-c:v', 'libx264', '-bf', '16', '-b_strategy', '0', '-g', '20', '-crf', '5', '-movflags', 'frag_keyframe+empty_moov')
    const starts = [0, 22.5, 49.5]
    const made: string[] = []
    for (const seconds of starts) made.push(madeOf(await trim(slow, { startMs: seconds * 1000, endMs: seconds * 1000 + 500 })).path)
    t.same(allNumbersOf(made), starts.map((seconds) => [frameAt(slow, seconds)]))
  })

  t.test('of a variable frame rate, the frame on display at the start comes first, and every frame keeps its time', async (t) => {
    const held = make('held.mp4', ...colour('red', { seconds: 2 }), ...colour('lime', { seconds: 3 }), '-filter_complex', "[0][1]concat,select='eq(n,0)+eq(n,50)+eq(n,124)'", '-fps_mode', 'vfr', ...X264)
    const made = madeOf(await trim(held, { startMs: 1040, endMs: 3040 }))
    t.ok(Math.abs(made.facts.durationMs - 2000) <= 80, `${made.facts.durationMs} ms`)
    const colours = coloursAt(made.path, 0.5, 0.5)
    t.ok(colours.slice(0, 11).every((one) => alike(one, [255, 0, 0])))
    t.ok(colours.slice(13).every((one) => alike(one, [0, 255, 0])))
  })

  t.test('a frame that has been on display for seconds before the start comes first', async (t) => {
    const still = make('still.mp4', ...colour('red', { seconds: 2 }), ...colour('lime', { seconds: 10 }), ...colour('blue', { seconds: 2 }), '-filter_complex', "[0][1][2]concat=n=3,select='lte(n,50)+gte(n,300)'", '-fps_mode', 'vfr', ...X264)
    const colours = coloursAt(madeOf(await trim(still, { startMs: 11_000, endMs: 13_000 })).path, 0.5, 0.5)
    t.equal(colours.length, 50)
    t.ok(colours.every((one, n) => Math.abs(n - 25) <= 1 || alike(one, n < 25 ? [0, 255, 0] : [0, 0, 255])))
  })

  t.test('a nominal rate that is only the clock of the timestamps is replaced by the mean rate', async (t) => {
    const ticks = make('ticks.mkv', ...counted(75), '-vf', 'settb=1/1000,setpts=N*40+mod(N\\,3)', '-fps_mode', 'passthrough', '-enc_time_base', '1/1000', '-c:v', 'libvpx', '-crf', '4', '-b:v', '5M')
    const made = madeOf(await trim(ticks, { startMs: 1000, endMs: 2000 }))
    t.ok(Math.abs(made.facts.durationMs - 1000) <= 40)
    const numbers = numbersOf(made.path)
    t.same([...new Set(numbers)], range(numbers[0]!, numbers.at(-1)! + 1))
    t.ok(numbers[0]! >= 24 && numbers[0]! <= 25 && numbers.length <= 60)
  })

  t.test('accurate applies a stored rotation to the pixels; fast keeps it as metadata', async (t) => {
    const upright = make('upright.mp4', ...colour('red', { size: '32x48' }), ...colour('blue', { size: '32x48' }), '-filter_complex', 'hstack', ...X264)
    const turned = make('turned.mp4', '-i', upright, '-c', 'copy', '-metadata:s:v', 'rotate=270')
    const made = madeOf(await trim(turned, { startMs: 200 }))
    t.match(made.facts, { width: 48, height: 64 })
    t.match(streamsOf(made.path), [{ width: 48, height: 64, side_data_list: undefined }])
    const fast = madeOf(await trim(turned, { startMs: 200, mode: 'fast' }))
    t.match(fast.facts, { width: 48, height: 64 })
    const [source, top, bottom, copied] = allColoursAt([[turned, 0.5, 0.1], [made.path, 0.5, 0.1], [made.path, 0.5, 0.9], [fast.path, 0.5, 0.1]]).map(([first]) => first!)
    t.same([alike(top, source!), alike(bottom, source!), alike(copied, source!)], [true, false, true])
  })

  t.test('non-square pixels become square', async (t) => {
    const wide = make('wide.mp4', ...colour('red'), '-vf', 'setsar=2/1', ...X264)
    t.match(madeOf(await trim(wide, {})).facts, { width: 128, height: 48 })
  })

  t.test('odd sizes are rounded to even ones, a single pixel to 2 by 2', async (t) => {
    const sizes = [['63x47', 62, 46], ['1x1', 2, 2]] as const
    const odd = makeEach(sizes.map(([size]) => [`odd${size}.mp4`, colour('red', { size }), ['-pix_fmt', 'yuv444p', '-c:v', 'libx264']]))
    const made: string[] = []
    for (const [n, [, width, height]] of sizes.entries()) {
      const { facts, path } = madeOf(await trim(odd[n]!, { endMs: 400 }))
      t.same(facts, { width, height, durationMs: 400 })
      made.push(path)
    }
    for (const [first] of allColoursAt(made.map((path) => [path, 0.5, 0.5]))) t.ok(alike(first, [255, 0, 0]))
  })

  t.test('a video of one frame is trimmed to that frame', async (t) => {
    const made: string[] = []
    for (const one of makeAll(counted(1), [['one.mp4', X264], ['one.mkv', X264]])) made.push(madeOf(await trim(one, { endMs: 5000 })).path)
    t.same(allNumbersOf(made), [[0], [0]])
  })

  t.test('a video whose frame size changes midway keeps its first size', async (t) => {
    const [first, second] = [make('first.ts', ...colour('red'), ...X264), make('second.ts', ...colour('lime', { size: '160x90' }), '-output_ts_offset', '1', ...X264)]
    const changing = join(folder, 'changing.ts')
    await writeFile(changing, Buffer.concat([await readFile(first), await readFile(second)]))
    const made = madeOf(await trim(changing, {}))
    t.match(made.facts, { width: 64, height: 48 })
    t.ok(Math.abs(made.facts.durationMs - 2000) <= 80)
    const colours = coloursAt(made.path, 0.5, 0.5)
    t.ok(colours.every((one, n) => Math.abs(n - 25) <= 3 || alike(one, n < 25 ? [255, 0, 0] : [0, 255, 0])))
    t.same(numbersOf(madeOf(await trim(make('adaptive.mkv', '-i', changing, '-c', 'copy'), { startMs: 500, endMs: 1500 })).path).length, 25)
  })

  t.test('colours are preserved from full range, RGB and another YCbCr matrix', async (t) => {
    const [red, green, blue] = [48, 112, 192]
    const source = colour('0x3070c0', { size: '64x48' })
    const films = makeAll(source, [
      ['full.webm', ['-vf', 'scale=out_range=pc,format=yuv420p', '-color_range', 'pc', '-c:v', 'libvpx-vp9', '-deadline', 'realtime']],
      ['rgb.mp4', ['-c:v', 'libx264rgb', '-crf', '1']],
      ['bt709.mp4', ['-vf', 'scale=out_color_matrix=bt709,format=yuv420p', '-colorspace', 'bt709', ...X264]],
    ])
    const made: string[] = []
    for (const one of films) made.push(madeOf(await trim(one, {})).path)
    for (const [n, colours] of allColoursAt(made.map((path) => [path, 0.5, 0.5])).entries()) {
      t.ok(alike(colours[3], [red, green, blue]), `${films[n]}: ${colours[3]}`)
      t.match(streamsOf(made[n]!), [{ color_range: 'tv', color_space: /709|170m/ }])
    }
  })

  t.test('high dynamic range is mapped to standard', async (t) => {
    const vf = 'zscale=pin=bt709:tin=bt709:min=bt709:p=bt2020:t=arib-std-b67:m=bt2020nc,format=yuv420p10le'
    const hdr = make('hdr.mp4', ...colour('red', { size: '64x64' }), '-vf', vf, '-color_primaries', 'bt2020', '-color_trc', 'arib-std-b67', '-colorspace', 'bt2020nc', '-c:v', 'libx264')
    const made = madeOf(await trim(hdr, {}))
    t.match(streamsOf(made.path), [{ pix_fmt: 'yuv420p', color_space: 'bt709', color_transfer: 'bt709', color_primaries: 'bt709' }])
    const [red = 0, green = 255, blue = 255] = coloursAt(made.path, 0.5, 0.5)[3] ?? []
    t.ok(red > 120 && green < 60 && blue < 60, `${red} ${green} ${blue}`)
  })

  /** `fast` is for what its format can copy: the others are trimmed accurately then. */
  const SOUNDS: [name: string, encoded: string[], format: 'm4a' | 'mp3', ...modes: ('accurate' | 'fast')[]][] = [
    ['sound.mp3', ['-c:a', 'libmp3lame', '-q:a', '4'], 'm4a', 'accurate'],
    ['no-header.mp3', ['-c:a', 'libmp3lame', '-q:a', '4', '-write_xing', '0'], 'mp3', 'accurate', 'fast'],
    ['sound.opus', ['-c:a', 'libopus'], 'm4a', 'accurate'],
    ['sound.m4a', ['-c:a', 'aac'], 'm4a', 'fast'],
    ['sound.aac', ['-c:a', 'aac'], 'm4a', 'accurate', 'fast'],
    ['sound.weba', ['-c:a', 'libopus', '-f', 'webm'], 'm4a', 'accurate'],
  ]
  t.test('of an audio file, both modes return the section between the two times', async (t) => {
    const made: { name: string; path: string }[] = []
    for (const [n, input] of makeAll(tones(5, 2.5), SOUNDS.map(([name, encoded]) => [name, encoded])).entries()) {
      const [sound, , format, ...modes] = SOUNDS[n]!
      for (const mode of modes) {
        const { contentType, facts, path } = madeOf(await trim(input, { startMs: 2000, endMs: 4000, mode, format }))
        const name = `${sound}, ${mode}`
        t.equal(contentType, { m4a: 'audio/mp4', mp3: 'audio/mpeg' }[format], name)
        t.match(facts, { width: null, height: null }, name)
        t.ok(Math.abs(facts.durationMs - 2000) <= 60, `${name}: ${facts.durationMs} ms`)
        made.push({ name, path })
      }
    }
    for (const [n, tones] of allTonesOf(made.map(({ path }) => path)).entries()) t.ok(Math.abs(riseOf(tones) - 50) <= 6, `${made[n]?.name}: the tone rises at ${riseOf(tones)}`)
  })

  t.test('an album cover in an audio file is not treated as video', async (t) => {
    const covered = make('covered.mp3', ...tones(2), ...colour('red'), '-map', '0', '-map', '1', '-frames:v', '1', '-c:v', 'mjpeg', '-pix_fmt', 'yuvj420p', '-disposition:v', 'attached_pic')
    t.match(madeOf(await trim(covered, { endMs: 1000 })), { contentType: 'audio/mp4', facts: { width: null } })
  })

  const WRITTEN: [FormatName, string, string[]][] = [
    ['mp4', 'video/mp4', ['h264', 'aac']],
    ['webm', 'video/webm', ['vp9', 'opus']],
    ['m4a', 'audio/mp4', ['aac']],
    ['mp3', 'audio/mpeg', ['mp3']],
    ['wav', 'audio/wav', ['pcm_s16le']],
    ['flac', 'audio/flac', ['flac']],
  ]
  t.test('every format is written from videos and from audio files', async (t) => {
    const sound = make('alone.wav', ...tones(2))
    const made: ReturnType<typeof madeOf>[] = []
    const alone: ReturnType<typeof madeOf>[] = []
    for (const [format] of WRITTEN) made.push(madeOf(await trim(film, { startMs: 1000, endMs: 2000, format })))
    for (const [format] of WRITTEN.slice(0, 2)) alone.push(madeOf(await trim(sound, { endMs: 1000, format })))
    const paths = made.map(({ path }) => path)
    t.same(codecsOf(paths).map(({ codecs }) => codecs), WRITTEN.map(([, , codecs]) => codecs))
    t.same(codecsOf(alone.map(({ path }) => path)).map(({ codecs }) => codecs), [['aac'], ['opus']])
    t.same(alone.map(({ contentType }) => contentType), ['audio/mp4', 'audio/webm'])
    t.same(allNumbersOf(paths.slice(0, 2)), [range(25, 50), range(25, 50)])
    const heard = allTonesOf(paths)
    for (const [n, [format, contentType]] of WRITTEN.entries()) {
      t.equal(made[n]?.contentType, contentType)
      t.ok(Math.abs((made[n]?.facts.durationMs ?? 0) - 1000) <= 60, `${format}: ${made[n]?.facts.durationMs} ms`)
      t.ok(Math.abs(riseOf(heard[n]!) - 50) <= 6, format)
    }
  })

  t.test('WAV and FLAC are cut without losing a bit, in both modes', async (t) => {
    const codecs = [['8.wav', 'pcm_u8'], ['24.wav', 'pcm_s24le'], ['float.wav', 'pcm_f32le'], ['24.flac', 'flac']] as const
    const sources = makeAll(['-f', 'lavfi', '-i', 'anoisesrc=r=44100:d=2:seed=1'], codecs.map(([name, codec]) => [name, ['-ac', '2', '-c:a', codec, ...(codec === 'flac' ? ['-sample_fmt', 's32'] : [])]]))
    const made: string[] = []
    for (const [n, [name]] of codecs.entries()) {
      for (const mode of ['accurate', 'fast'] as const) made.push(madeOf(await trim(sources[n]!, { startMs: 500, endMs: 1500, mode, format: name.split('.')[1] as FormatName })).path)
    }
    t.same(codecsOf(made), codecs.flatMap(([, codec]) => [codec, codec]).map((codec) => ({ codecs: [codec], rates: [44_100] })))
    const samples = samplesOf([...sources, ...made])
    for (const [n, [name]] of codecs.entries()) {
      const whole = samples[n]!
      for (const [mode, section] of [['accurate', samples[4 + 2 * n]!], ['fast', samples[5 + 2 * n]!]] as const) {
        const from = whole.indexOf(section.subarray(0, 4096))
        t.ok(section.length >= 44_100 * 16 && from >= 0 && whole.subarray(from, from + section.length).equals(section), `${name}, ${mode}`)
        if (mode === 'accurate') t.same([from, section.length], [22_050 * 16, 44_100 * 16], name)
      }
    }
  })

  t.test('an audio format of a video without audio is no_sound', async (t) => {
    t.match(await trim(silent, { format: 'mp3' }), { outcome: 'failed', code: 'no_sound', retryable: false })
  })

  t.test('fast copies the packets from the key frame before the start, without encoding', async (t) => {
    const made = madeOf(await trim(film, { startMs: 1500, endMs: 2500, mode: 'fast' }))
    t.same(numbersOf(made.path).slice(0, 37), range(25, 62))
    t.notOk(isPrivate(await readFile(made.path)))
    t.ok(made.facts.durationMs >= 1500 && made.facts.durationMs < 1900, `${made.facts.durationMs} ms`)
    const own = (path: string): string => execFileSync(programs.ffmpeg, ['-v', 'error', '-i', path, '-map', '0:v', '-c', 'copy', '-bsf:v', 'h264_mp4toannexb', '-f', 'framemd5', '-'], { encoding: 'utf8' })
    const before = own(film)
    for (const line of own(made.path).split('\n').filter((line) => line && !line.startsWith('#')).slice(1)) t.ok(before.includes(line.split(',').at(-1)!.trim()))
  })

  t.test('fast trims accurately where the result from the key frame on would be longer than its limit', async (t) => {
    const oneKey = films[0]!
    const section = { startMs: 2000, endMs: 2200, mode: 'fast' } as const
    const made = madeOf(await trim(oneKey, section, { limits: { ...LIMITS, durationMs: 450 } }))
    t.equal(made.facts.durationMs, 200)
    t.same(numbersOf(made.path), range(frameAt(oneKey, 2), frameAt(oneKey, 2) + 5))
    t.ok(madeOf(await trim(oneKey, section)).facts.durationMs >= 2000, 'within its limit, it begins with the key frame')
  })

  t.test('fast trims accurately what cannot be copied', async (t) => {
    const ts = make('fast.ts', ...counted(75), ...X264)
    for (const [input, format] of [[film, 'webm'], [ts, 'mp4']] as const) {
      const made = madeOf(await trim(input, { startMs: 1200, endMs: 2400, mode: 'fast', format }))
      t.same(numbersOf(made.path), range(frameAt(input, 1.2), frameAt(input, 1.2) + 30))
    }
    const sound = madeOf(await trim(make('fast.weba', ...tones(5, 2.5), '-c:a', 'libopus', '-f', 'webm'), { startMs: 2000, endMs: 4000, mode: 'fast', format: 'webm' }))
    t.ok(Math.abs(sound.facts.durationMs - 2000) <= 60, `a sound, whose clusters last seconds: ${sound.facts.durationMs} ms`)
  })

  t.test('progress is whole percents from 0 to 99 that never fall', async (t) => {
    const long = make('long.mp4', '-f', 'lavfi', '-i', 'testsrc2=s=640x360:r=25:d=10', '-c:v', 'libx264', '-preset', 'ultrafast')
    const reported: number[] = []
    madeOf(await trim(long, { startMs: 1000 }, { progress: (percent) => reported.push(percent) }))
    t.same(reported, reported.toSorted((a, b) => a - b))
    t.ok(reported.every((percent) => Number.isInteger(percent) && percent >= 0 && percent <= 99))
    t.ok(reported.some((percent) => percent > 0 && percent < 99), reported.join())
  })

  t.test('unsupported_input: playlists, file lists, texts, pictures, noise and truncated headers, whatever their name', async (t) => {
    const server = createServer((_request, response) => response.end('x'))
    const port = await listening(t, server)
    let requests = 0
    server.on('request', () => requests++)
    const url = `http://127.0.0.1:${port}/a.ts`
    const bytes = await readFile(film)
    const picture = await readFile(make('picture.png', ...colour('red'), '-frames:v', '1'))
    const cases: Record<string, string | Buffer> = {
      'empty.mp4': '',
      'text.mp4': 'this is a text, and long enough to be sniffed as one\n'.repeat(40),
      'playlist.mp4': '#EXTM3U\n#EXT-X-TARGETDURATION:10\n#EXTINF:10,\nfile:///etc/passwd\n#EXT-X-ENDLIST\n',
      'playlist-remote.mp4': `#EXTM3U\n#EXT-X-TARGETDURATION:10\n#EXTINF:10,\n${url}\n#EXT-X-ENDLIST\n`,
      'list.mp4': "ffconcat version 1.0\nfile '/etc/passwd'\n",
      'list-of-films.mp4': `ffconcat version 1.0\nfile '${film}'\n`,
      'session.sdp': 'v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\nm=video 5004 RTP/AVP 96\na=rtpmap:96 H264/90000\n',
      'manifest.mp4': `<?xml version="1.0"?><MPD xmlns="urn:mpeg:dash:schema:mpd:2011" type="static"><Period><BaseURL>${url}</BaseURL></Period></MPD>`,
      'drawing.svg': '<svg xmlns="http://www.w3.org/2000/svg"><image href="file:///etc/passwd"/></svg>',
      'picture.mp4': picture,
      'first-bytes-only.mp4': bytes.subarray(0, 32),
      'without-index.mp4': bytes.subarray(0, bytes.indexOf('moov') - 4),
      'noise-behind-a-header.mp4': Buffer.concat([bytes.subarray(0, 40), Buffer.alloc(20_000, 0xa7)]),
      'noise-behind-a-header.mkv': Buffer.concat([Buffer.from('1a45dfa3', 'hex'), Buffer.alloc(20_000, 0xa7)]),
      'noise.mp3': Buffer.concat([Buffer.from('ID3'), Buffer.alloc(20_000, 1)]),
      'zeros.mp4': Buffer.alloc(20_000),
    }
    for (const [name, content] of Object.entries(cases)) {
      const path = join(folder, name)
      await writeFile(path, content)
      const made = await trim(path, { endMs: 500 })
      t.match(made, { outcome: 'failed', code: 'unsupported_input', retryable: false }, name)
      if (made.outcome === 'failed') t.notOk(/root:/.test(String(made.cause)))
    }
    t.equal(requests, 0, 'nothing was fetched')
  })

  t.test('unsupported_input: a codec outside the list, and a file of subtitles alone', async (t) => {
    const strange = make('strange.mkv', ...counted(5), '-c:v', 'ffv1')
    const words = join(folder, 'words.srt')
    await writeFile(words, '1\n00:00:00,000 --> 00:00:01,000\nwords\n')
    for (const path of [strange, make('words.mkv', '-i', words)]) t.match(await trim(path, {}), { outcome: 'failed', code: 'unsupported_input' })
  })

  t.test('a truncated file is unsupported_input; a few damaged bytes are not', async (t) => {
    const front = make('front.mp4', '-i', film, '-c', 'copy', '-movflags', '+faststart')
    await truncate(front, Math.floor((await stat(front)).size / 2))
    t.match(await trim(front, {}), { outcome: 'failed', code: 'unsupported_input' })
    const scratched = make('scratched.mp4', ...counted(75), ...X264, '-movflags', '+faststart')
    const file = await open(scratched, 'r+')
    await file.write(Buffer.alloc(40, 0x55), 0, 40, Math.floor((await file.stat()).size * 0.6))
    await file.close()
    t.same(madeOf(await trim(scratched, {})).facts, { width: 64, height: 48, durationMs: 3000 })
  })

  t.test('input_too_large: bytes and pixels of the source; result_too_large: length of the section, and bytes of the result', async (t) => {
    const { size } = await stat(film)
    const tooLarge: [limits: object, failed: object][] = [
      [{ bytes: size - 1 }, { code: 'input_too_large', details: { limit: { bytes: size - 1 } } }],
      [{ pixels: 64 * 48 - 1 }, { code: 'input_too_large', details: { found: { width: 64, height: 48 } } }],
      [{ durationMs: 900 }, { code: 'result_too_large', details: { found: { seconds: 1 }, limit: { seconds: 0.9 } } }],
    ]
    for (const [limits, failed] of tooLarge) {
      t.match(await trim(film, { endMs: 1000 }, { limits: { ...LIMITS, ...limits } }), { outcome: 'failed', retryable: false, ...failed })
    }
    t.equal((await trim(film, { endMs: 1000 }, { limits: { bytes: size, pixels: 64 * 48, durationMs: 1000 } })).outcome, 'made', 'whatever the length of the source')
    t.match(await trim(make('small.mp3', ...tones(20)), { format: 'wav' }, { limits: { ...LIMITS, bytes: 500_000 } }), { outcome: 'failed', code: 'result_too_large', details: { limit: { bytes: 500_000 } } })
  })

  t.test('input_too_large: more than 32 streams', async (t) => {
    const many = make('many.mkv', ...tones(1), ...Array.from({ length: 40 }, () => ['-map', '0']).flat(), '-c:a', 'flac')
    t.match(await trim(many, {}), { outcome: 'failed', code: 'input_too_large' })
  })

  t.test('a crash of ffmpeg, or its absence, is internal and retryable', async (t) => {
    for (const ffmpeg of ['/bin/false-is-not-here', join(folder, 'crash')]) {
      await writeFile(join(folder, 'crash'), '#!/bin/sh\nkill -SEGV $$\n', { mode: 0o755 })
      t.match(await trim(film, {}, { programs: { ...programs, ffmpeg } }), { outcome: 'failed', code: 'internal', retryable: true })
    }
  })
})
