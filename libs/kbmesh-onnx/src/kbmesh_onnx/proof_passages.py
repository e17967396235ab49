"""Passages on which int8 is held against fp32, of the length that people index. Nothing else is made of them."""

PASSAGES = (
    "The backup job starts at two in the morning and copies every volume that is tagged for retention. It "
    "first takes a snapshot, then compares checksums with the copy of the night before, and sends only the "
    "blocks that differ. If the link is slower than ten megabits a second the job stops after four hours, "
    "writes what is left to the journal and goes on there the next night. Three failures in a row open a "
    "ticket with the team that owns the volume, and the dashboard shows the volume in red until somebody "
    "has acknowledged it.",
    "Employees earn two and a half days of paid leave for each month of service. Leave that is not taken "
    "by the end of March of the following year is lost, unless the manager asked for the work to be "
    "finished first; that has to be confirmed in writing. During the first three months leave may be taken "
    "only with the consent of the department. A doctor's note is needed from the third day of illness on, "
    "and days of illness during leave are given back.",
    "A lemon cake keeps best if the syrup is poured over it while it is still warm. Beat 200 g of butter "
    "with the same weight of sugar until it is pale, add four eggs one after another, then fold in the "
    "flour and the grated peel of two lemons. Bake for 45 minutes at 170 degrees. Meanwhile boil the juice "
    "with three spoons of sugar. Prick the cake all over with a skewer before you pour, or most of the "
    "syrup will run down the sides.",
    "In patients with mild hypertension, a reduction of dietary sodium by about two grams a day lowered "
    "systolic pressure by 4.2 mmHg on average (95 % confidence interval 2.9 to 5.5) within eight weeks. "
    "The effect was larger in those over sixty and in those whose pressure was higher at the start. No "
    "difference was seen in heart rate, plasma lipids or fasting glucose, and eleven of 212 participants "
    "left the study, none of them for harm.",
    "def merge_intervals(intervals: list[tuple[int, int]]) -> list[tuple[int, int]]:\n    merged: "
    "list[tuple[int, int]] = []\n    for start, end in sorted(intervals):\n        if merged and start <= "
    "merged[-1][1]:\n            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))\n        "
    "else:\n            merged.append((start, end))\n    return merged\n",
    "Subject: Re: Invoice 2024-1187\nHi Dana, thanks for sending the corrected invoice. Accounting tells "
    "me that the order number is still the old one (PO-88213 instead of PO-88231), so the system will not "
    "match it. Could you send it once more by Thursday? Then it goes out with this month's payments. Best, "
    "Jonas",
    "Die Heizung wird im Herbst entlüftet, bevor sie zum ersten Mal richtig warm wird. Man stellt die "
    "Pumpe ab, wartet eine halbe Stunde, öffnet das Ventil am obersten Heizkörper und hält ein Gefäß "
    "darunter. Sobald Wasser statt Luft kommt, wird das Ventil geschlossen. Fällt der Druck danach unter "
    "ein Bar, muss Wasser nachgefüllt werden.",
    "El contrato de alquiler se firma por un año y se prorroga cada año hasta un máximo de cinco, salvo "
    "que el inquilino comunique con treinta días de antelación que no desea renovarlo. La fianza equivale "
    "a una mensualidad y se devuelve en el plazo de un mes desde la entrega de las llaves.",
    "图书馆每天早上九点开门，晚上九点关门，周一闭馆。读者凭借书证一次可以借十本书，期限三十天，可以续借一"
    "次。逾期的书每天收取一角钱，损坏或丢失的书按原价赔偿。",
    "Error 0x80070005: access is denied. The service account cannot write to "
    "C:\\ProgramData\\Agent\\state. Give it Modify rights on that folder, or set AGENT_STATE_DIR to one "
    "that it may write to, then restart the service.",
    "The river rises in a bog at 1,140 metres, runs east through three lakes and falls over a weir into "
    "the old harbour. Until 1871 barges carried slate down to the sea; the railway ended that within two "
    "years. Today the towpath is a cycle route, and otters, which had not been seen since the war, breed "
    "again below the second lock.",
    "| plan | users | storage | price a month |\n| free | 3 | 5 GB | 0 |\n| team | 25 | 500 GB | 49 |\n| "
    "business | unlimited | 5 TB | 199 |\nAll plans hold data in one region. Moving to another region "
    "takes a support request and up to two days, during which the workspace can be read but not changed.",
)
