"""What mail programs write around quotes and under mails, in the languages they speak."""

import re


def _either(phrases: str) -> str:
    """A pattern for any of the phrases, which are patterns themselves, one a line; the longest first."""
    lines = [line.strip() for line in phrases.strip().splitlines()]
    return "|".join(sorted(filter(None, lines), key=len, reverse=True))


def _words(words: str) -> str:
    return _either(words.replace(" / ", "\n").replace(" /\n", "\n"))


_WROTE = _words("""
    wrote / wrote the following / writes / written
    schrieb / schrieben / schreibt / hat geschrieben
    a écrit / a ecrit / écrivait / escribió / escribio / escreveu / va escriure / ha scritto / scrisse
    schreef / schreef het volgende / heeft het volgende geschreven / skrev / skrifaði / kirjoitti
    napisał / napisała / napisał\\(a\\) / napsal / napsala / napsal\\(a\\) / napísal / napísala / napisao / pisze
    írta / ezt írta / a scris / yazdı / şunu yazdı / şunları yazdı
    написал / написала / написал\\(а\\) / написав / написав\\(-ла\\) / пише / пишет / писал / писала / έγραψε
    написа / пишеше / напиша / је написао / је написала / напісаў / напісала / je napisao / je napisala
    je napisal / je napisala / kirjutas / rakstīja / rašė / parašė / escribiu / idatzi du / shkroi
    đã viết / viết / sumulat / כתב / כתבה / כתב/ה / كتب / نوشت / ने लिखा
""")
_UNSPACED_WROTE = _words("写道 / 寫道 / のメール / 書きました / 님이 작성 / 작성 / เขียนว่า / เขียน")
_OPENERS = _words("""
    On / At / Am / Den / D. / Le / El / El dia / Il / Il giorno / Em / A / Op / På / Dne / Dňa / W dniu / Dnia / Pe /
    Dana / U / На / Дана / Dne. / Lp / Στις / Vào / Pada / В / Вт / Пн / Ср / Чт / Пт / Сб / Вс / 在 / 于 / 於 / ב / في
""")
_MARK = r"[^\S\r\n]?[:：]"
_WHEN = r"[^:：]{0,60}(?:(?<=\d)[:：]\d\d[^:：]{0,40}){0,3}[:：]"
"""What follows "wrote", up to the colon that ends the line: often when, with the colons of a time."""

OPENED_ATTRIBUTION = re.compile(
    rf"(?:{_OPENERS})(?:[\s,\-]|(?<=[在于於])).{{2,}}(?:(?:{_WROTE})(?!\w)|{_UNSPACED_WROTE}){_WHEN}"
)
"""`On Tue, 4 Mar 2025 at 10:00, Kim <kim@example.com> wrote:` and its kin. It may go over several lines."""
ATTRIBUTIONS = (
    OPENED_ATTRIBUTION,
    # "Kim Lee <kim@example.com> wrote:", "kim (Kim Lee) writes:", "Kim wrote on 04.03.25 10:00:"
    re.compile(rf".*(?:(?<!\w)(?:{_WROTE})(?!\w)|{_UNSPACED_WROTE}){_WHEN}"),
    # "2025-03-04 10:00 GMT+01:00 Kim <kim@example.com>:"
    re.compile(rf"(?=.*\d).*[^\s<>@]+@[^\s<>@]+>?\)?{_MARK}"),
    re.compile(r"(?=.*\d{4}).*(?:さん|様|님)[^:：]{0,20}[:：]"),
    re.compile(rf"Quoting .{{2,}}{_MARK}"),
)
"""Lines that say who wrote what is quoted below."""

_SEPARATORS = _words("""
    original message / original appointment / original mail / forwarded message / forwarded by .{1,80} / reply message
    forwarded mail / mensaje original / mensaje reenviado / mensagem original / mensagem encaminhada
    message d['’]origine / message original / message transféré / message transfere / messaggio originale
    messaggio inoltrato / ursprüngliche nachricht / urspruengliche nachricht / ursprüngliche mail / original-nachricht
    originalnachricht / weitergeleitete nachricht / oorspronkelijk bericht / oorspronkelijke bericht
    doorgestuurd bericht / ursprungligt meddelande / originalmeddelande / vidarebefordrat meddelande
    opprinnelig melding / videresendt melding / oprindelig meddelelse / videresendt meddelelse / alkuperäinen viesti
    välitetty viesti / wiadomość oryginalna / oryginalna wiadomość / wiadomość przekazana / původní zpráva
    přeposlaná zpráva / pôvodná správa / исходное сообщение / оригинальное сообщение / пересылаемое сообщение
    пересланное сообщение / orijinal mesaj / orijinal ileti / iletilen mesaj / eredeti üzenet / továbbított üzenet
    mesaj original / mesaj redirecționat / αρχικό μήνυμα / προωθημένο μήνυμα
    原始邮件 / 原始郵件 / 原邮件 / 转发邮件 / 转发的邮件 / 轉寄郵件 / 元のメッセージ / 転送メッセージ
    転送されたメッセージ
    원본 메일 / 원본 메시지 / 전달된 메시지
    הודעה מקורית / הודעה שהועברה / الرسالة الأصلية / الرسالة المعاد توجيهها
""")
SEPARATOR = re.compile(rf"[ \t*]*[-_=]{{2,}}[ \t]*(?:{_SEPARATORS})[ \t]*[-_=]{{2,}}[ \t*]*", re.IGNORECASE)
"""`-----Original Message-----` and its kin."""
_FORWARDS = _words("""
    begin forwarded message / anfang der weitergeleiteten nachricht / anfang der weitergeleiteten e-mail
    début du message réexpédié / début du message transféré / inizio messaggio inoltrato
    inicio del mensaje reenviado / início da mensagem reencaminhada / início da mensagem encaminhada
    begin doorgestuurd bericht / vidarebefordrat brev / videresendt besked / 転送されたメッセージ
    下面是被转发的邮件 / 以下是轉寄的郵件 / 以下是转寄的邮件
""")
BEGIN_FORWARDED = re.compile(rf"(?:{_FORWARDS}){_MARK}", re.IGNORECASE)
"""`Begin forwarded message:` and its kin."""

_FIELD_NAMES = {
    "from": """
        from/von/de/da/van/från/fra/lähettäjä/od/nadawca/odesílatel/от/отправитель/від/feladó/kimden/de la/expeditor
        expéditeur/remitente/remetente/mittente/από/发件人/寄件者/寄件人/差出人/送信者/보낸 사람/보낸사람/מאת/من
    """,
    "date": """
        sent/date/gesendet/datum/envoyé/envoyé le/date d'envoi/enviado/enviado el/enviado em/fecha/fecha de envío/data
        inviato/verzonden/skickat/sendt/dato/lähetetty/päivämäärä/wysłano/odesláno/отправлено/дата/відправлено/elküldve
        dátum/gönderildi/gönderilme tarihi/tarih/trimis/στάλθηκε/ημερομηνία/发送时间/发送日期/日期/时间/寄件日期
        傳送時間/送信日時/日付/日時/보낸 날짜/날짜/נשלח/תאריך/تاريخ/تاريخ الإرسال
    """,
    "to": """
        to/an/à/a/para/aan/naar/till/til/vastaanottaja/do/komu/кому/címzett/kime/către/προς/destinatario/destinataire
        收件人/收件者/宛先/받는 사람/받는사람/אל/إلى
    """,
    "cc": "cc/kopie/kopi/kopia/copie/copia/копия/копія/抄送/副本/참조/bcc/másolat/bilgi/עותק/نسخة",
    "subject": """
        subject/betreff/objet/asunto/assunto/oggetto/onderwerp/ämne/emne/aihe/temat/předmět/predmet/тема/tárgy/konu
        subiect/θέμα/主题/主旨/件名/제목/נושא/الموضوع
    """,
}
_FIELD_KINDS = {
    name.strip(): kind
    for kind, names in _FIELD_NAMES.items()
    for name in names.replace("\n", "/").split("/")
    if name.strip()
}
_LABEL = re.compile(
    r" ?[*_]{0,2}([^\s*_:：][^*_:：\r\n]{0,24}?)[ \t\u00a0]?[*_]{0,2}(?:[:：][*_]{0,2}(?:[ \t\u00a0]|$)|：)"
)


def field_kind(line: str) -> str:
    """What a line such as `From: Kim` or `**Gesendet:** Montag` in the text of a mail tells: from, date, to, cc or
    subject; empty where it is no such line."""
    label = _LABEL.match(line)
    return _FIELD_KINDS.get(label.group(1).lower(), "") if label else ""


_DEVICES = _words("""
    iphone / ipad / ipod / apple watch / android / samsung / galaxy / blackberry / mobile / phone / outlook
    mail for windows / windows mail / mail / yahoo mail / gmail / proton ?mail / huawei / xiaomi / nokia / tablet
    handheld / htc / lg / nexus / pixel / sony / handy / smartphone / mobiltelefon / téléphone / tablette / móvil
    telemóvel / celular / dispositivo / cellulare / mobiel / mobil / telefon / telefoon
""")
_MOBILE = _either("""
    sent (?:from|via|using) (?:my |the )?(?:DEVICE)\\b.{0,40}
    get outlook for \\S.{0,60}
    von (?:meinem|meiner) (?:DEVICE)\\b.{0,40} gesendet
    gesendet (?:von|mit|aus) (?:meinem |meiner |der )?(?:DEVICE)\\b.{0,40}
    envoyé (?:de|depuis|à partir de) (?:mon |ma )?(?:DEVICE)\\b.{0,40}
    enviado (?:desde|do|de|del) (?:mi |meu |o )?(?:DEVICE)\\b.{0,40}
    inviato da(?:l)? (?:mio )?(?:DEVICE)\\b.{0,40}
    (?:verstuurd|verzonden) (?:met|vanaf|vanuit|via) (?:mijn |my )?(?:DEVICE)\\b.{0,40}
    (?:skickat|sendt) (?:från|fra) min (?:DEVICE)\\b.{0,40}
    lähetetty (?:iphonesta|ipadista|androidista|puhelimesta|\\S{1,20}-laitteesta)
    wysłane z (?:mojego )?(?:DEVICE|iphone'a|iphone’a).{0,40}
    odesláno z (?:mého )?(?:DEVICE)u?\\b.{0,40}
    отправлено (?:с|из) (?:моего )?(?:DEVICE|телефона|смартфона|почты).{0,40}
    (?:DEVICE)から送信
    发自我的 ?(?:DEVICE|手机).{0,30}
    從我的 ?(?:DEVICE|手機) ?傳送
    나의 (?:DEVICE)에서 보냄
    iphone['’]umdan gönderildi
""")
MOBILE = re.compile(rf"(?:{_MOBILE.replace('DEVICE', _DEVICES)})[ \t.]*", re.IGNORECASE)
"""What a phone signs with."""
DISCLAIMER = re.compile(
    r"""\**(?:
    confidentiality\ (?:notice|note)\b|legal\ (?:notice|disclaimer)\b|privileged\ and\ confidential\b|disclaimer\s*:
    |(?:this|the\ information\ (?:in|contained\ in)\ this)\ (?:e-?mail|message|communication|transmission)\b
        (?=.{0,300}\b(?:confidential|privileged|intended\ (?:only|solely)))
    |diese\ (?:e-?mail|nachricht)\b(?=.{0,300}\bvertraulich)
    |ce\ (?:message|courriel|mail)\b(?=.{0,300}\bconfidenti)
    |este\ (?:mensaje|correo|e-?mail)\b(?=.{0,300}\bconfidenc)
    |(?:esta\ mensagem|este\ e-?mail)\b(?=.{0,300}\bconfidenc)
    |questo\ messaggio\b(?=.{0,300}\b(?:riservat|confidenzial))
    )""",
    re.IGNORECASE | re.DOTALL | re.VERBOSE,
)
"""How a paragraph begins that a company puts under every mail."""
LIST_FOOTER = re.compile(r"mailing list|mailman|unsubscribe|listinfo|\blists\.|@lists?\.", re.IGNORECASE)
"""What the footer of a mailing list holds."""
