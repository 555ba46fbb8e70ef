/** Icons as strokes of one grid of 24 units. They decorate: the text beside them carries the meaning. */
const PATHS = {
  home: 'M4 11l8-7 8 7v8a1 1 0 0 1-1 1h-4v-6H9v6H5a1 1 0 0 1-1-1z',
  key: 'M15 9a4 4 0 1 1-8 0 4 4 0 0 1 8 0zM11 13v8M11 17h4M11 20.5h3',
  chart: 'M4 20h16M7 16v-5M12 16V6M17 16v-8',
  code: 'M9 8l-5 4 5 4M15 8l5 4-5 4',
  spark: 'M12 3l2 6.5L20 12l-6 2.5L12 21l-2-6.5L4 12l6-2.5z',
  tasks: 'M9 6h11M9 12h11M9 18h11M4.5 6h.01M4.5 12h.01M4.5 18h.01',
  copy: 'M9 9h10v11H9zM5 15V4h10',
  check: 'M5 12.5l4.5 4.5L19 7.5',
  close: 'M6 6l12 12M18 6L6 18',
  plus: 'M12 5v14M5 12h14',
  rotate: 'M20 12a8 8 0 1 1-2.4-5.7M20 3v4.5h-4.5',
  pause: 'M9 6v12M15 6v12',
  play: 'M8 5l11 7-11 7z',
  trash: 'M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13M10.5 11v5M13.5 11v5',
  eye: 'M2.5 12S6 5.5 12 5.5 21.5 12 21.5 12 18 18.5 12 18.5 2.5 12 2.5 12zM15 12a3 3 0 1 1-6 0 3 3 0 0 1 6 0z',
  lock: 'M6 11h12v9H6zM8.5 11V8a3.5 3.5 0 0 1 7 0v3',
  warning: 'M12 4l9 16H3zM12 10v4.5M12 17.5h.01',
  info: 'M21 12a9 9 0 1 1-18 0 9 9 0 0 1 18 0zM12 11v5.5M12 7.5h.01',
  offline: 'M3 3l18 18M8.5 15.5a5 5 0 0 1 7 0M5 12a10 10 0 0 1 4.5-2.6M13.5 9.2A10 10 0 0 1 19 12M12 19h.01',
  download: 'M12 4v11M7.5 11l4.5 4.5 4.5-4.5M5 20h14',
  upload: 'M12 16V5M7.5 9L12 4.5 16.5 9M5 20h14',
  refresh: 'M4 12a8 8 0 0 1 13.7-5.6L20 9M20 4v5h-5M20 12a8 8 0 0 1-13.7 5.6L4 15M4 20v-5h5',
  send: 'M4 12l16-8-5 16-3.5-6.5z',
  chevron: 'M9 6l6 6-6 6',
  back: 'M15 6l-6 6 6 6',
  out: 'M10 4H5v16h5M14 8l4 4-4 4M18 12H9',
  sun: 'M16 12a4 4 0 1 1-8 0 4 4 0 0 1 8 0zM12 2.5v2M12 19.5v2M2.5 12h2M19.5 12h2M5.3 5.3l1.4 1.4M17.3 17.3l1.4 1.4M5.3 18.7l1.4-1.4M17.3 6.7l1.4-1.4',
  moon: 'M20 14.5A8.5 8.5 0 0 1 9.5 4a8.5 8.5 0 1 0 10.5 10.5z',
  device: 'M4 5h16v11H4zM9 20h6M12 16v4',
  image: 'M4 5h16v14H4zM4 16l4.5-4.5 4 4 3-3L20 17M9.5 9h.01',
  video: 'M4 6h11v12H4zM15 11l5-3v8l-5-3',
  music: 'M9 18V6l10-2v12M9 18a2.5 2.5 0 1 1-5 0 2.5 2.5 0 0 1 5 0zM19 16a2.5 2.5 0 1 1-5 0 2.5 2.5 0 0 1 5 0z',
  clock: 'M21 12a9 9 0 1 1-18 0 9 9 0 0 1 18 0zM12 7v5.5l3.5 2',
  webhook: 'M7 17a3 3 0 1 1 2-5.2L12 7a3 3 0 1 1 3 0M14 9l3 5a3 3 0 1 1-2.5 4.5H9',
  menu: 'M4 7h16M4 12h16M4 17h16',
} as const

export type IconName = keyof typeof PATHS

export function Icon({ name, size = 20 }: { name: IconName; size?: number }) {
  return (
    <svg class="icon" width={size} height={size} viewBox="0 0 24 24" aria-hidden="true" focusable="false">
      <path d={PATHS[name]} />
    </svg>
  )
}
