/** What an engine takes beside the usual fields, over the form of a service that offers it. */
import type { Page } from 'playwright-core'
import type { Test } from 'tap'
import { png } from '../backends/engines/media-samples.ts'
import { inPage, until, violations, type Dashboard } from './dashboard.ts'
import { choose, make, pick, prompt, tasks } from './room-page.ts'

type Named = { name: string; fields?: object }
type Body = Record<string, unknown>

const IMAGE = { n: { type: 'integer', minimum: 1, maximum: 4 }, quality: { enum: ['standard', 'high'] }, negative_prompt: { type: 'string', maxLength: 8000 } }
const VIDEO = { image_url: { type: 'string', minLength: 1, maxLength: 1024 * 1024 } }
const QUOTE = { estimated_cost: '0.04', available: '100.00', affordable: true, queue_position: 0, estimated_wait_seconds: null }

/** Lets the service offer these fields. Returns the latest body of which the page has asked the price. */
async function offer(page: Page, fields: Record<string, object>): Promise<() => Body> {
  let latest: Body = {}
  await page.unrouteAll({ behavior: 'ignoreErrors' })
  await page.route('**/media/kinds', async (route) => {
    const answer = await (await route.fetch()).json()
    await route.fulfill({ json: { ...answer, data: answer.data.map((kind: Named) => ({ ...kind, fields: fields[kind.name] ?? kind.fields })) } })
  })
  await page.route('**/media/generations?*dry_run=true*', (route) => {
    latest = route.request().postDataJSON()
    return route.fulfill({ json: QUOTE })
  })
  await page.reload()
  await prompt(page).waitFor()
  return () => latest
}

export async function optionTests(t: Test, dashboard: Dashboard): Promise<void> {
  await inPage(t, dashboard, 'options that cost money are in sight when they come back, and go when the kind no longer has them', { path: '/room' }, async (page, t) => {
    const quoted = await offer(page, { image: IMAGE })
    await prompt(page).fill('Three boats')
    await page.getByRole('button', { name: 'More settings' }).click()
    await page.getByLabel('How many').fill('3')
    await page.getByRole('radio', { name: 'High' }).press('Space')
    await until('the price of three', async () => quoted()['n'] === 3)
    t.match(quoted(), { n: 3, quality: 'high' })
    await page.reload()
    t.equal(await page.getByLabel('How many').inputValue(), '3')
    t.same(await violations(page), [], 'the options')

    const create = page.getByRole('button', { name: 'Create', exact: true })
    await page.locator('.price[data-state="quoted"]').waitFor()
    t.ok(await create.isEnabled())
    await page.getByLabel('Negative prompt').fill('x'.repeat(8001))
    await page.getByText('8,001 characters').waitFor()
    t.ok(await create.isDisabled(), 'a text that is too long')
    await page.getByLabel('Negative prompt').fill('')

    const without = await offer(page, { image: {} })
    await until('the price of one', async () => without()['prompt'] === 'Three boats')
    t.same(Object.keys(without()).sort(), ['kind', 'prompt'])
  })

  await inPage(t, dashboard, 'a video begins with a picture of the gallery, a file, or an address', { path: '/room' }, async (page, t) => {
    await make(page, 'A first frame')
    const quoted = await offer(page, { video: VIDEO })
    await choose(page, 'Video')
    await prompt(page).fill('It moves')
    await page.locator('.gallery-item', { hasText: 'A first frame' }).getByRole('button', { name: /^First frame: / }).click()
    const [task] = await tasks(page, 'generations')
    await until('the price with the link', async () => String(quoted()['image_url']).includes(String(task?.['id'])))
    await page.reload()
    await page.getByAltText('Source: A first frame').waitFor()
    t.same(await violations(page), [], 'a picture')
    await pick(page, { name: 'own.png', mimeType: 'image/png', buffer: png(96, 64) })
    await page.getByAltText('Source: own.png').waitFor()
    await page.getByRole('button', { name: 'Remove', exact: true }).click()
    await page.getByRole('textbox', { name: 'First frame' }).fill('https://pictures.example/one.png')
    await until('the price with the address', async () => quoted()['image_url'] === 'https://pictures.example/one.png')
    await page.reload()
    t.equal(await page.getByRole('textbox', { name: 'First frame' }).inputValue(), 'https://pictures.example/one.png')
    t.same(await violations(page), [], 'an address')
  })

  await inPage(t, dashboard, 'a task of several images says so in the gallery, and before they are deleted', { path: '/room' }, async (page) => {
    await page.route('**/media/tasks?*', async (route) => {
      const answer = await (await route.fetch()).json()
      const several = (task: { result: object | null }) => ({ ...task, result: task.result && { ...task.result, images: Array(4).fill(task.result) } })
      await route.fulfill({ json: { ...answer, data: answer.data.map(several) } })
    })
    await page.reload()
    const item = page.locator('.gallery-item').first()
    await item.getByText('1 of 4').waitFor()
    await item.getByRole('button', { name: /^Delete/ }).click()
    await page.getByRole('dialog').getByText('All 4 images of this task are removed now').waitFor()
  })
}
