/** URLs that must be refused before DNS resolution, each with the reason. */
import type { Refusal } from '../../src/egress/target-url.ts'

const address = (hosts: string[]): [string, Refusal][] => hosts.map((host) => [`http://${host}/hook`, 'address_not_allowed'])
const refused = (reason: Refusal, urls: string[]): [string, Refusal][] => urls.map((url) => [url, reason])

export const REFUSED_SPELLINGS: [url: string, reason: Refusal][] = [
  // Loopback: dotted, short, decimal, octal, hexadecimal, mixed, with dots and digits of other scripts.
  ...address([
    '127.0.0.1', '127.0.0.2', '127.255.255.254', '127.1', '127.0.1', '2130706433', '017700000001', '0x7f000001', '0x7f.1', '0x7F.0x0.0x0.0x1',
    '0177.0.0.1', '0177.0.0.01', '00000177.1', '127.0.0.1.', '127.1.', '2130706433.', '0x7f.0.1.', '%31%32%37.0.0.1', '127%2e0%2e0%2e1',
    '１２７.０.０.１', '127。0。0。1', '127．0．0．1', '127｡0｡0｡1', '①②⑦.⓪.⓪.①', '𝟭𝟮𝟳.0.0.1', '127.0.0.1:8080', '1\u00ad27.0.0.1',
  ]),
  // "This network", broadcast, private, carrier-grade NAT.
  ...address([
    '0', '0.0.0.0', '0x0', '0.1.2.3', '255.255.255.255', '4294967295', '10.0.0.1', '10.1', '167772161', '0xa.1', '012.0.0.1', '172.16.0.1',
    '172.31.255.255', '0xac100001', '192.168.0.1', '192.168.1', '3232235521', '0300.0250.0.1', '100.64.0.1', '100.127.255.255',
  ]),
  // Metadata services of clouds.
  ...address([
    '169.254.169.254', '2852039166', '0xa9fea9fe', '0251.0376.0251.0376', '169.254.43518', '169.254.169.254.', '169.254.170.2', '168.63.129.16',
    '2822734096', '100.100.100.200', '192.0.0.192', '[fd00:ec2::254]', '[::ffff:169.254.169.254]', '[64:ff9b::a9fe:a9fe]',
  ]),
  // Reserved, documentation, benchmarking, relays, multicast.
  ...address([
    '192.0.0.1', '192.0.2.1', '198.51.100.7', '203.0.113.9', '198.18.0.1', '198.19.255.255', '192.88.99.1', '192.31.196.1', '192.52.193.1',
    '192.175.48.1', '224.0.0.1', '239.255.255.250', '240.0.0.1', '254.1.2.3',
  ]),
  // IPv6: loopback and unspecified in every spelling, IPv4-compatible (::/96), mapped, translated, NAT64.
  ...address([
    '[::1]', '[::1]:8080', '[0:0:0:0:0:0:0:1]', '[0000:0000:0000:0000:0000:0000:0000:0001]', '[::0001]', '[::]', '[0::0]', '[::127.0.0.1]',
    '[::7f00:1]', '[::10.0.0.1]', '[::8.8.8.8]', '[::ffff:127.0.0.1]', '[::ffff:7f00:1]', '[0:0:0:0:0:ffff:127.0.0.1]', '[::FFFF:7F00:0001]',
    '[0000::ffff:0a00:0001]', '[::ffff:8.8.8.8]', '[::ffff:0:127.0.0.1]', '[64:ff9b::7f00:1]', '[64:ff9b::127.0.0.1]', '[64:ff9b::8.8.8.8]',
    '[64:ff9b:1::a00:1]', '[64:ff9b:1:fffe::1]',
  ]),
  // IPv6: 6to4, Teredo, ORCHID, local, documentation, discard, segment routing, multicast, unassigned.
  ...address([
    '[2002:7f00:1::]', '[2002:a00:1::1]', '[2002:808:808::1]', '[2001::1]', '[2001:0:7f00:1::]', '[2001:2::1]', '[2001:10::1]', '[2001:20::1]',
    '[2001:db8::1]', '[3fff::1]', '[100::1]', '[fc00::1]', '[fd12:3456:789a::1]', '[fe80::1]', '[febf::1]', '[fec0::1]', '[5f00::1]', '[ff02::1]',
    '[ff0e::1]', '[4000::1]', '[8000::1]', '[e000::1]', '[2620:4f:8000::1]',
  ]),
  // localhost is loopback without a resolver (RFC 6761).
  ...address(['localhost', 'LOCALHOST', 'localhost.', 'localhost:3000', 'a.localhost', 'a.b.localhost.', 'ｌｏｃａｌｈｏｓｔ', 'loc%61lhost', 'ⓛocalhost']),
  ...refused('scheme_not_allowed', [
    'ftp://example.com/', 'file:///etc/passwd', 'gopher://example.com/', 'data:text/plain,x', 'javascript:alert(1)', 'ws://example.com/',
    'unix:/var/run/docker.sock', 'http+unix://%2Fvar%2Frun%2Fdocker.sock/', 'blob:http://example.com/x', 'view-source:http://example.com/', 'HTTPX://example.com',
  ]),
  ...refused('userinfo_not_allowed', [
    'http://user@example.com/', 'http://user:secret@example.com/', 'http://@example.com/', 'http://:@example.com/', 'http://example.com@127.0.0.1/',
    'http://127.0.0.1@example.com/', 'http://example.com:80@127.0.0.1/', 'http://a@b@example.com/', 'http://example.com%40x@127.0.0.1/',
  ]),
  ...refused('port_not_allowed', [
    'http://example.com:22/', 'http://example.com:25/', 'https://example.com:465/', 'http://example.com:0/', 'http://example.com:81/',
    'http://example.com:1023/', 'http://example.com:2049/', 'http://example.com:6000/', 'http://example.com:6667/', 'http://example.com:10080/',
    'http://8.8.8.8:53/', 'http://[2606:4700::1111]:25/',
  ]),
  ...refused('invalid_url', [
    '', 'example.com/hook', '//example.com/', '/hook', 'http:', 'http://', 'http:///', 'http:example.com', 'http:/example.com', 'http:///example.com/',
    'http:\\\\example.com\\', 'http://example.com\\@127.0.0.1/', 'http://exam\nple.com/', 'http://exa\tmple.com/', 'http://example.com/\r\nHost: x', ' http://example.com/',
    'http://example.com/ ', 'http://exam ple.com/', 'http://example.com\u0000/', 'http://example.com:65536/', 'http://example.com:-1/', 'http://example.com:8o/',
    'http://[fe80::1%25eth0]/', 'http://[fe80::1%eth0]/', 'http://[::1%25lo]/', 'http://[::1/', 'http://::1/', 'http://[::ffff:127.1]/', 'http://[127.0.0.1]/',
    'http://256.0.0.1/', 'http://1.2.3.4.5/', 'http://0x100000000/', 'http://4294967296/', 'http://127.0.0.1../', 'http://localhost../', 'http://example..com/',
    'http://.example.com/', 'http://./', 'http://%00.example.com/', 'http://exa%2fmple.com/', 'http://foo.0x7f/', `http://${'a.'.repeat(130)}example.com/`,
  ]),
]

export const ALLOWED_SPELLINGS: string[] = [
  'http://example.com', 'https://example.com/hook?a=b#c', 'HTTPS://EXAMPLE.COM/', 'https://example.com./', 'https://example.com:443/', 'http://example.com:8080/',
  'https://example.com:8443/', 'https://example.com:65535/', 'http://8.8.8.8/', 'http://134744072/', 'http://[2606:4700:4700::1111]/', 'https://bücher.example/',
  'https://xn--bcher-kva.example/', 'https://a_b.example.com/', 'http://notlocalhost/', 'http://localhost.example.com/', 'http://example.com/a@b',
  'http://example.com/?next=http://127.0.0.1/', 'http://192.88.98.1/', 'http://172.32.0.1/', 'http://100.128.0.1/', 'http://11.0.0.1/', 'http://169.253.0.1/',
]

/** Resolved addresses that refuse a name, alone or beside a public address. */
export const REFUSED_ADDRESSES: string[] = [
  '127.0.0.1', '0.0.0.0', '10.0.0.1', '172.16.0.1', '192.168.0.1', '169.254.169.254', '100.64.0.1', '168.63.129.16', '198.18.0.1', '224.0.0.1', '255.255.255.255',
  '::', '::1', '::127.0.0.1', '::ffff:10.0.0.1', '::ffff:8.8.8.8', '64:ff9b::a00:1', '64:ff9b:1::1', '2002:a00:1::', '2001:0:1::1', '2001:db8::1', 'fc00::1', 'fe80::1',
  'fe80::1%eth0', 'fec0::1', 'ff02::1', '3fff::1', '127.1', '0x7f.1', 'not an address', '',
]
