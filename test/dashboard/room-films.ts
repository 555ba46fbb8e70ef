import type { Test } from 'tap'
import { png } from '../backends/engines/media-samples.ts'
import { inPage, violations, type Dashboard } from './dashboard.ts'
import { choose, done, isSource, pick, press, prompt, run, tasks, useResult } from './room-page.ts'

export async function filmTests(t: Test, dashboard: Dashboard): Promise<void> {
  await inPage(t, dashboard, 'a film is trimmed by its handles and merged with another in the chosen order', { path: '/room' }, async (page, t) => {
    await choose(page, 'Video')
    await prompt(page).fill('Waves under a full moon')
    await page.getByLabel('Length').fill('3')
    await page.locator('.price', { hasText: '0.30 credits' }).waitFor()
    await press(page, 'Create')
    const whole = await done(page)
    await useResult(page)
    await choose(page, 'Trim')
    await page.getByLabel('Start', { exact: true }).fill('0.5')
    await page.getByLabel('End', { exact: true }).fill('2')
    await page.getByText('0.5 s to 2.0 s: 1.5 s stay').waitFor()
    t.same(await violations(page), [], 'the handles')
    const trimmed = await run(page)
    t.match((await tasks(page, 'operations'))[0], { operation: 'trim', input: { media_url: whole, start_time: 0.5, end_time: 2 }, result: { duration_ms: 1500 } })
    await choose(page, 'Merge')
    await page.getByRole('button', { name: 'Add to merge: Waves under a full moon · Trim' }).click()
    await page.getByRole('button', { name: 'Move Waves under a full moon · Trim up' }).click()
    t.same(await violations(page), [], 'the order')
    t.ok(await page.evaluate('[...document.querySelectorAll(".merge-list button")].every((button) => button.getBoundingClientRect().right < document.querySelector(".room-form").getBoundingClientRect().right)'), 'the buttons are in the form, however long the names are')
    await page.locator('.price', { hasText: /^at most 0\.0\d+ credits of/ }).waitFor()
    await run(page)
    const [merged] = await tasks(page, 'operations')
    t.match(merged, { operation: 'merge', input: { media_urls: [trimmed, whole] }, status: 'completed' })
    t.ok(Number(merged?.['estimated_cost']) < 0.04, 'the quote is that of the known lengths')
    await page.getByRole('button', { name: /^Add to merge/ }).first().waitFor()
    await page.getByRole('button', { name: 'Remove Waves under a full moon', exact: true }).click()
    await page.getByRole('button', { name: 'Previous input' }).click()
    await page.getByRole('button', { name: 'Move Waves under a full moon up' }).waitFor()
    await choose(page, 'Trim')
    await pick(page, { name: 'image.png', mimeType: 'image/png', buffer: png(96, 64, { paint: () => null }) })
    await isSource(page, 'image.png')
    t.equal(await page.getByRole('button', { name: /^Add to merge/ }).count(), 0, 'an image is merged with nothing')
  })
}
