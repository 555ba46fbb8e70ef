import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import type { Locator, Page } from 'playwright-core'
import type { Test } from 'tap'
import { inPage, until, violations, type Dashboard } from './dashboard.ts'
import { choose, done, make, prompt, read } from './room-page.ts'
import { demoKey } from './usage.ts'

const LAPTOP = { width: 1280, height: 800 }

/** Whether an element is wholly in the visible part of the page. */
async function isInView(page: Page, element: Locator): Promise<boolean> {
  const box = await element.boundingBox()
  const { width = 0, height = 0 } = page.viewportSize() ?? {}
  return box !== null && box.x >= 0 && box.y >= 0 && box.x + box.width <= width && box.y + box.height <= height
}

/** Runs a text of the page as a person who pastes it. */
async function runPasted(language: string, text: string, key: string): Promise<string> {
  const [program = '', ...args] = { curl: ['bash', '-c'], JavaScript: [process.execPath, '--input-type=module', '-e'], Python: ['python3', '-c'] }[language] ?? []
  const env = { PATH: process.env['PATH'] ?? '', SVC_MEDIA_API_KEY: key }
  return (await promisify(execFile)(program, [...args, text], { env })).stdout
}

export async function showTests(t: Test, dashboard: Dashboard, { hasSharp }: { hasSharp: boolean }): Promise<void> {
  await inPage(t, dashboard, 'on a laptop the form is beside the result with its button in view; a prompt that is too long says so and loses nothing; the code of the form runs as pasted', { path: '/room', viewport: LAPTOP }, async (page, t) => {
    const create = page.getByRole('button', { name: 'Create', exact: true })
    await create.waitFor()
    t.ok(await isInView(page, create))
    const [form, stage] = [await page.locator('.room-form').boundingBox(), await page.locator('.room-stage').boundingBox()]
    t.ok(form && stage && stage.x >= form.x + form.width && Math.abs(stage.y - form.y) < 2, 'side by side')
    await page.getByText('A preview: a placeholder, made without a model.').waitFor()

    const long = `${'Boats. '.repeat(1200)}end`
    await prompt(page).fill(long)
    await page.getByText('8,403 characters: 403 more than the 8,000 that fit.').waitFor()
    t.equal(await prompt(page).inputValue(), long)
    t.ok(await create.isDisabled())

    await page.route('**/dashboard/api/**', (route) => route.abort())
    await prompt(page).fill('Lost')
    await page.getByText('The service does not answer.').waitFor()
    await page.unrouteAll({ behavior: 'ignoreErrors' })
    await page.locator('.price[data-state="quoted"]').waitFor()

    await prompt(page).fill(`A quay, "it's" 'evening' $HOME 🌅 \\n`)
    await page.getByRole('button', { name: 'Code', exact: true }).click()
    const dialog = page.getByRole('dialog', { name: 'This request as code' })
    await dialog.getByText('the key media', { exact: true }).or(dialog.getByText('holds the key media.')).first().waitFor()
    t.same(await violations(page), [])
    const key = await demoKey(dashboard, 'media')
    t.notOk((await page.content()).includes(key), 'the name of the key is in place of the key')
    for (const language of ['curl', 'JavaScript', 'Python']) {
      await dialog.getByRole('radio', { name: language }).check({ force: true })
      const output = await runPasted(language, (await dialog.locator('pre').textContent()) ?? '', key)
      t.match(output, /completed/, language)
    }
    const { body } = await read(page, '/dashboard/api/media/generations')
    t.same([...new Set(body.data.slice(0, 3).map((task) => task['prompt']))], [`A quay, "it's" 'evening' $HOME 🌅 \\n`], 'each made what the form says')
    await dialog.getByRole('radio', { name: 'MCP' }).check({ force: true })
    t.match(await dialog.locator('pre').textContent(), /callTool\(\{"name":"generate_image"/)
    await page.keyboard.press('Escape')
  })

  await inPage(t, dashboard, 'the gallery shows small pictures, is filtered by kind, leads into the form with the focus, and what is deleted is gone', { path: '/room', viewport: LAPTOP }, async (page, t) => {
    const small = page.waitForResponse((response) => response.url().endsWith('/thumbnail'))
    await page.getByRole('radio', { name: '16:9' }).check({ force: true })
    await make(page, 'Gulls over a breakwater')
    const bytes = (await (await small).body()).length
    if (hasSharp) t.ok(bytes > 500 && bytes < 40_000, `a thumbnail of ${bytes} bytes`)
    const url = await done(page)
    const item = page.locator('.gallery-item', { hasText: 'Gulls over a breakwater' })
    await page.getByRole('radio', { name: 'Music', exact: true }).last().check({ force: true })
    await item.waitFor({ state: 'detached' })
    await page.getByRole('radio', { name: 'Image', exact: true }).last().check({ force: true })
    await item.waitFor()

    await page.getByRole('button', { name: 'Zoom' }).click()
    t.ok(await page.evaluate('((image) => image.naturalWidth > 1000 && image.getBoundingClientRect().width === image.naturalWidth)(document.querySelector(".zoom img"))'), 'pixel by pixel')
    await page.keyboard.press('Escape')
    await page.getByRole('radio', { name: '1:1' }).check({ force: true })
    await page.getByRole('button', { name: 'Reuse prompt' }).click()
    await until('the settings that it was made by', () => page.getByRole('radio', { name: '16:9' }).isChecked())

    await item.getByRole('button', { name: /^Use as input/ }).click()
    await until('the focus', () => page.evaluate<boolean>('document.activeElement?.classList.contains("source-name")'))
    await choose(page, 'Inpaint')
    t.ok(await isInView(page, page.getByRole('button', { name: 'Run', exact: true })), 'the action stays in view')

    await item.getByRole('button', { name: /^Delete/ }).click()
    const dialog = page.getByRole('dialog', { name: 'Delete this result?' })
    await dialog.getByRole('button', { name: 'Delete', exact: true }).click()
    await item.waitFor({ state: 'detached' })
    t.equal((await page.request.get(url)).status(), 410)
    const { body } = await read(page, '/dashboard/api/media/generations')
    const id = String(body.data[0]?.['id'])
    t.equal((await page.request.delete(`${dashboard.process.url}/dashboard/api/media/results/${id}`, { headers: { 'x-tollgate-csrf': '1' } })).status(), 404, 'it is deleted once')
    await page.goto(`${dashboard.process.url}/dashboard/tasks/${id}`)
    await page.getByText('The result is gone').waitFor()
  })
}
