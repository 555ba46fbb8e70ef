import type { Page } from 'playwright-core'
import type { Test } from 'tap'
import { png } from '../backends/engines/media-samples.ts'
import { pngBomb } from '../backends/engines/pictures.ts'
import { inPage, violations, type Dashboard } from './dashboard.ts'
import { choose, isSource, make, pick, press, prompt, run, tasks, useResult } from './room-page.ts'

const HOSTILE_NAME = `"><img src=x onerror="alert('name')">.png`
const PICTURE = png(96, 64, { paint: (x, y) => (x > 30 && x < 66 && y > 16 && y < 48 ? [240, 200, 40] : null) })

/** A script of the page: the share of pixels that differ between two pictures, in the part between two shares of their width. */
const DIFFERING = `async ([urls, from, to]) => {
  const [a, b] = await Promise.all(urls.map(async (url) => {
    const picture = await createImageBitmap(await (await fetch(url)).blob())
    const context = new OffscreenCanvas(picture.width, picture.height).getContext('2d')
    context.drawImage(picture, 0, 0)
    const left = Math.floor(picture.width * from)
    return context.getImageData(left, 0, Math.floor(picture.width * to) - left, picture.height).data
  }))
  let count = 0
  for (let i = 0; i < a.length; i += 4) if (Math.abs(a[i] - b[i]) + Math.abs(a[i + 1] - b[i + 1]) > 24) count++
  return count / (a.length / 4)
}`

/** A script of the page: whether a part of the picture is marked. */
const MARKED = `((canvas) => canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data.some((value) => value > 0))(document.querySelector('.mask canvas'))`

/** A script of the page: drops or pastes a file. */
const HAND_OVER = `([event, name, base64]) => {
  const data = new DataTransfer()
  data.items.add(new File([Uint8Array.from(atob(base64), (character) => character.charCodeAt(0))], name, { type: 'image/png' }))
  const options = { bubbles: true, cancelable: true }
  if (event === 'drop') document.querySelector('.drop').dispatchEvent(new DragEvent('drop', { dataTransfer: data, ...options }))
  else document.dispatchEvent(new ClipboardEvent('paste', { clipboardData: data, ...options }))
}`

const inBrowser = <T>(page: Page, script: string, args: unknown[]): Promise<T> => page.evaluate<T>(`(${script})(${JSON.stringify(args)})`)

const latestOperation = async (page: Page) => (await tasks(page, 'operations'))[0]

export async function editTests(t: Test, dashboard: Dashboard): Promise<void> {
  await inPage(t, dashboard, 'a factor whose result is larger than what is offered says so, and cannot be run', { path: '/room' }, async (page, t) => {
    await page.getByRole('radio', { name: 'Edit', exact: true }).check({ force: true })
    await pick(page, { name: 'large.png', mimeType: 'image/png', buffer: png(2100, 2100) })
    await isSource(page, 'large.png')
    await choose(page, 'Upscale')
    await page.getByText('2100 × 2100 becomes 4200 × 4200: more than the largest result').waitFor()
    t.equal(await page.getByRole('button', { name: 'Run', exact: true }).isDisabled(), true)
  })

  await inPage(t, dashboard, 'an image is made, its background is removed, and the result is upscaled; a result takes no place of the input by itself, and the input before comes back', { path: '/room' }, async (page, t) => {
    await make(page, 'A lighthouse by the sea at dawn')
    await useResult(page)
    await choose(page, 'Remove background')
    const cutOut = await run(page)
    t.match(await latestOperation(page), { operation: 'background_remove', status: 'completed' })
    const slider = page.getByLabel('Before and after')
    await slider.focus()
    await page.keyboard.press('ArrowRight')
    t.equal(await slider.inputValue(), '51')
    await isSource(page, 'A lighthouse by the sea at dawn')
    await useResult(page)
    await isSource(page, 'Remove background')
    await choose(page, 'Upscale')
    await page.getByText('1024 × 1024 becomes 2048 × 2048').waitFor()
    await run(page)
    t.match(await latestOperation(page), { operation: 'upscale', input: { media_url: cutOut, scale: 2 }, result: { width: 2048, height: 2048 } })
    await page.getByRole('button', { name: 'Previous input' }).click()
    await isSource(page, 'A lighthouse by the sea at dawn')
  })

  await inPage(t, dashboard, 'a part that the brush marks is replaced, and the rest stays', { path: '/room' }, async (page, t) => {
    await make(page, 'A red balloon over hills by day')
    const before = await page.getByRole('link', { name: 'Download', exact: true }).getAttribute('href')
    await useResult(page)
    await choose(page, 'Inpaint')
    await prompt(page).fill('open sea')
    t.equal(await page.getByRole('button', { name: 'Run' }).isDisabled(), true, 'nothing is marked yet')
    const canvas = page.getByLabel('Picture to mark')
    await canvas.scrollIntoViewIfNeeded()
    const box = await canvas.boundingBox()
    if (!box) throw new Error('there is no brush area')
    const at = (x: number, y: number) => [box.x + box.width * x, box.y + box.height * y] as const
    await page.mouse.move(...at(0.7, 0.3))
    await page.mouse.down()
    await page.mouse.move(...at(0.7, 0.85), { steps: 6 })
    await page.mouse.up()
    await page.locator('.price[data-state="quoted"]').waitFor()
    await page.reload()
    await page.locator('.price[data-state="quoted"]').waitFor()
    t.equal(await page.evaluate(MARKED), true, 'a reload keeps the marks')
    await page.getByRole('button', { name: 'Undo' }).click()
    await page.getByText('Mark a part.').waitFor()
    await canvas.focus()
    await page.keyboard.press('Control+E')
    t.ok(await page.getByRole('radio', { name: 'Mark', exact: true }).isChecked(), 'the keys of the browser are not those of the brush')
    for (const isErasing of [true, false]) {
      await page.keyboard.press('Shift+E')
      t.equal(await page.getByRole('radio', { name: 'Erase', exact: true }).isChecked(), isErasing, 'with caps lock')
    }
    const keys = [...Array(3).fill('+'), ...Array(11).fill('ArrowRight'), ...Array(15).fill('ArrowUp'), ...Array.from({ length: 18 }, () => ['Space', 'ArrowDown', 'ArrowDown']).flat()]
    for (const key of keys) await page.keyboard.press(key)
    t.same(await violations(page), [], 'the brush')
    const after = await run(page)
    t.match(await latestOperation(page), { operation: 'inpaint', status: 'completed', input: { mask_url: { content_type: 'image/png' } } })
    t.ok((await inBrowser<number>(page, DIFFERING, [[before, after], 0.64, 0.8])) > 0.005, 'the marked part changed')
    t.equal(await inBrowser(page, DIFFERING, [[before, after], 0, 0.55]), 0, 'the rest did not')
    await page.getByRole('radio', { name: 'Make', exact: true }).check({ force: true })
    await useResult(page)
    await page.getByText('Mark a part.').waitFor()
    t.equal(await page.evaluate(MARKED), false, 'another source has no marks, also when it was chosen from the other form')
  })

  await inPage(t, dashboard, 'a file of the person is uploaded and edited; its name stays text', { path: '/room' }, async (page, t) => {
    await page.locator('label', { hasText: 'Edit' }).first().click()
    await pick(page, { name: HOSTILE_NAME, mimeType: 'image/png', buffer: PICTURE })
    await isSource(page, HOSTILE_NAME)
    t.equal(await page.locator('main img[src="x"]').count(), 0)
    await choose(page, 'Upscale')
    await page.getByRole('radio', { name: '3', exact: true }).check({ force: true })
    await run(page)
    t.match(await latestOperation(page), { operation: 'upscale', result: { width: 288, height: 192 } })
  })

  await inPage(t, dashboard, 'a file that is dropped or pasted is taken; one that is no media is refused with the reason', { path: '/room' }, async (page, t) => {
    await page.locator('label', { hasText: 'Edit' }).first().click()
    for (const [event, name] of [['drop', 'dropped.png'], ['paste', 'pasted.png']] as const) {
      await inBrowser(page, HAND_OVER, [event, name, PICTURE.toString('base64')])
      await isSource(page, name)
    }
    await pick(page, { name: 'page.png', mimeType: 'image/png', buffer: Buffer.from('<html><script>alert(1)</script>') })
    await page.getByRole('alert').getByText(/not an image, a video or an audio file/).waitFor()
    t.same(await violations(page), [])
    await isSource(page, 'pasted.png')
  })

  await inPage(t, dashboard, 'an operation that fails says why, what to do, and that nothing was charged', { path: '/room' }, async (page, t) => {
    await page.locator('label', { hasText: 'Edit' }).first().click()
    await pick(page, { name: 'damaged.png', mimeType: 'image/png', buffer: pngBomb(64, 64) })
    await page.getByText('damaged.png', { exact: true }).waitFor()
    await page.getByText('64 × 64').first().waitFor()
    await choose(page, 'Upscale')
    await press(page, 'Run')
    await page.getByText('This was not made').waitFor()
    await page.getByText('The source media cannot be read').waitFor()
    await page.getByText(/Nothing was charged/).waitFor()
    t.match(await latestOperation(page), { status: 'failed', actual_cost: '0.0000', error: { code: 'unsupported_input' } })
    t.same(await violations(page), [])
  })
}
