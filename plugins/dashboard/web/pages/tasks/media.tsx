import { downloadOf, isTransparent, urlOf, type Result, type Task } from '../../api/tasks.ts'
import { now } from '../../clock.ts'
import { Card } from '../../components/card.tsx'
import { Icon } from '../../components/icon.tsx'
import { Empty } from '../../components/states.tsx'
import { bytes, span, time } from '../../format.ts'

/** What a task made, to look at, play and save. */
export function Media({ task, result }: { task: Task; result: Result }) {
  const { content_type: type, width, height, duration_ms: durationMs } = result
  const url = urlOf(result)
  const facts = [
    type,
    width !== null && height !== null && `${width} × ${height}`,
    durationMs !== null && span(durationMs),
    bytes(result.bytes),
  ].filter(Boolean)
  if (Date.parse(result.expires_at) <= now.value) {
    return (
      <Card title="Result">
        <Empty icon="clock" title="The result is gone">
          It was kept until {time(result.expires_at)}.
        </Empty>
      </Card>
    )
  }
  return (
    <Card
      title="Result"
      hint={facts.join(' · ')}
      actions={
        <a class="button small" href={downloadOf(task, result)} download>
          <Icon name="download" size={16} /> Download
        </a>
      }
    >
      <div class={isTransparent(task) ? 'media checkered' : 'media'}>
        {type.startsWith('image/') && <img src={url} alt="The image that the task made" />}
        {type.startsWith('video/') && <video src={url} controls preload="metadata" aria-label="The video that the task made" />}
        {type.startsWith('audio/') && <audio src={url} controls preload="metadata" aria-label="The music that the task made" />}
      </div>
      <p class="hint">The link works until {time(result.expires_at)}.</p>
    </Card>
  )
}
